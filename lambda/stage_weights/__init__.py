"""Copies the weights of a model into a bucket: what is there is not copied again, what is copied is checked byte by byte."""
