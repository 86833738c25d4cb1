"""The scripts of mount_examples/, run as a user runs them."""
