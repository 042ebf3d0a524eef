"""What AWS is asked, one small file for each subject. Everything here reads; nothing is changed."""
