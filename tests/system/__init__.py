"""The installed ``kfs`` command, used as a user would use it, on a kernel that really mounts."""
