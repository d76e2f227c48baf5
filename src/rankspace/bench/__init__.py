"""What `rankspace bench` measures. Every result is checked in the run that times it."""
