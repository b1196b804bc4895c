"""If, Loop and Scan, and the plans of their bodies."""
