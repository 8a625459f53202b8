package peers

// Env is what firewall-cmd has to have in its environment to ask this firewalld.
func (f *Firewalld) Env() []string { return f.private.env }
