package check

// Manages says whether one of the ports of a protocol, both ends included, is one
// of management: by which a host is managed, or hands out all that it has.
func Manages(protocol uint8, from, to uint16) bool {
	for i := range management {
		if m := &management[i]; m.protocol == protocol && m.from <= to && from <= m.to {
			return true
		}
	}
	return false
}
