"""Files that are whole or not there, that notice damage, and that one process writes at a time."""
