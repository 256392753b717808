"""`headrace doctor`: finds what is wrong with a cluster."""
