"""How many pods a role needs: token velocities, the policy that follows from them, and a day of traffic replayed through it."""
