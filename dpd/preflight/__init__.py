"""What an account says about an environment: the questions, the dated answers, and the file that keeps them."""
