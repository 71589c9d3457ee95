"""What people see of a running worker."""
