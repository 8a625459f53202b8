package live

// FloodFrom sets from how many packets a second on the marking rests, and says what it was.
func FloodFrom(rate float64) (before float64) {
	before, flood = flood, rate
	return before
}
