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
