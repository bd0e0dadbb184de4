"""What an iteration is expected to take: the median and the 80 % interval, from the recorded errors of predictions."""
