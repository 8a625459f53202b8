package check

// management is the ports by which hosts and their data are managed, and that
// nobody means to open to everybody. The names are those of IANA's Service Name
// and Transport Protocol Port Number Registry where the program's use of the
// port is the registered one; what else a port is known for is documented by the
// program itself.
var management = []managed{
	{22, 22, protoTCP, "ssh", "Secure Shell", true},
	{23, 23, protoTCP, "telnet", "Telnet: passwords in clear text", false},
	{69, 69, protoUDP, "tftp", "files without a password", false},
	{111, 111, protoTCP, "sunrpc", "port mapper of NFS", false},
	{111, 111, protoUDP, "sunrpc", "port mapper, which multiplies forged requests", false},
	{137, 138, protoUDP, "netbios-ns", "NetBIOS", false},
	{139, 139, protoTCP, "netbios-ssn", "Windows file sharing", false},
	{161, 161, protoUDP, "snmp", "SNMP, which multiplies forged requests", false},
	{389, 389, protoTCP, "ldap", "LDAP without encryption", false},
	{389, 389, protoUDP, "ldap", "CLDAP, which multiplies forged requests", false},
	{445, 445, protoTCP, "microsoft-ds", "Windows file sharing", false},
	{513, 514, protoTCP, "login", "rlogin and rsh: no password", false},
	{623, 623, protoUDP, "asf-rmcp", "IPMI: the machine's own management", false},
	{631, 631, protoTCP, "ipp", "printing", false},
	{873, 873, protoTCP, "rsync", "rsync without encryption", false},
	{1433, 1433, protoTCP, "ms-sql-s", "Microsoft SQL Server", false},
	{1521, 1521, protoTCP, "", "Oracle Database", false},
	{2049, 2049, protoTCP, "nfs", "NFS", false},
	{2049, 2049, protoUDP, "nfs", "NFS", false},
	{2375, 2375, protoTCP, "docker", "Docker's API without a password: root for everybody", false},
	{2376, 2376, protoTCP, "docker-s", "Docker's API", false},
	{2379, 2379, protoTCP, "etcd-client", "etcd: everything that a cluster knows", false},
	{2380, 2380, protoTCP, "etcd-server", "etcd among its members", false},
	{3306, 3306, protoTCP, "mysql", "MySQL and MariaDB", false},
	{3389, 3389, protoTCP, "ms-wbt-server", "Remote Desktop", true},
	{4505, 4506, protoTCP, "", "Salt's master", false},
	{5432, 5432, protoTCP, "postgresql", "PostgreSQL", false},
	{5555, 5555, protoTCP, "", "Android's debug bridge", false},
	{5900, 5903, protoTCP, "rfb", "VNC", true},
	{5984, 5984, protoTCP, "couchdb", "CouchDB", false},
	{5985, 5986, protoTCP, "wsman", "Windows Remote Management", true},
	{6000, 6063, protoTCP, "x11", "X Window System", false},
	{6379, 6379, protoTCP, "redis", "Redis and Valkey", false},
	{6443, 6443, protoTCP, "", "Kubernetes' API", true},
	{8006, 8006, protoTCP, "", "Proxmox' web interface", true},
	{8086, 8086, protoTCP, "", "InfluxDB", false},
	{8291, 8291, protoTCP, "", "RouterOS' Winbox", true},
	{8500, 8500, protoTCP, "", "Consul's API", false},
	{9042, 9042, protoTCP, "", "Cassandra", false},
	{9090, 9090, protoTCP, "", "Prometheus or Cockpit", true},
	{9100, 9100, protoTCP, "", "Prometheus' node exporter, or printing", false},
	{9200, 9200, protoTCP, "", "Elasticsearch and OpenSearch", false},
	{9300, 9300, protoTCP, "", "Elasticsearch among its members", false},
	{10000, 10000, protoTCP, "", "Webmin", true},
	{10050, 10050, protoTCP, "zabbix-agent", "Zabbix' agent", false},
	{10250, 10250, protoTCP, "", "Kubernetes' kubelet: commands in every container", false},
	{10255, 10255, protoTCP, "", "Kubernetes' kubelet without a password", false},
	{11211, 11211, protoTCP, "memcache", "memcached without a password", false},
	{11211, 11211, protoUDP, "memcache", "memcached, which multiplies forged requests", false},
	{16509, 16509, protoTCP, "", "libvirt without encryption", false},
	{27017, 27019, protoTCP, "mongodb", "MongoDB", false},
}

// managed is a range of ports of management.
type managed struct {
	from, to  uint16
	protocol  uint8
	iana      string // registered name of the first port; "" where it is registered for something else or for nobody
	what      string
	withLimit bool // everybody asks for a password here, so that a limit per source is enough
}
