"""What goes into sandboxes, run as it runs there: under every Python of this machine."""
