package nfset

// SetBuffers sets the socket's buffers and the size of a transaction that may
// be cut.
func (c *Conn) SetBuffers(send, receive, cut int) error {
	if err := c.configure(send, receive); err != nil {
		return err
	}
	c.cut = min(cut, c.limit)
	return nil
}

// Get is DumpOf of many keys without the dump.
func (c *Conn) Get(s Set, keys [][]byte, each func(Element) error) (all bool, err error) {
	return c.get(s, keys, each)
}

// SetCounted says whether the kernel says how many elements a set has.
func (c *Conn) SetCounted(s Set) bool {
	all, err := c.get(s, nil, nil)
	return all && err == nil
}

// SetMany says from how many keys on DumpOf asks for each.
func (c *Conn) SetMany(many int) { c.many = many }
