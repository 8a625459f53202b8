package check

import "sluice/internal/base/packet"

// management is the ports by which hosts and their data are managed, and that
// nobody means to open to everybody. The names are those of IANA's Service Name
// and Transport Protocol Port Number Registry where the program's use of the
// port is the registered one; what else a port is known for is documented by the
// program itself.
var management = []managed{
	{22, 22, packet.TCP, "ssh", "Secure Shell", true},
	{23, 23, packet.TCP, "telnet", "Telnet: passwords in clear text", false},
	{69, 69, packet.UDP, "tftp", "files without a password", false},
	{111, 111, packet.TCP, "sunrpc", "port mapper of NFS", false},
	{111, 111, packet.UDP, "sunrpc", "port mapper, which amplifies forged requests", false},
	{137, 138, packet.UDP, "netbios-ns", "NetBIOS", false},
	{139, 139, packet.TCP, "netbios-ssn", "Windows file sharing", false},
	{161, 161, packet.UDP, "snmp", "SNMP, which amplifies forged requests", false},
	{389, 389, packet.TCP, "ldap", "LDAP without encryption", false},
	{389, 389, packet.UDP, "ldap", "CLDAP, which amplifies forged requests", false},
	{445, 445, packet.TCP, "microsoft-ds", "Windows file sharing", false},
	{513, 514, packet.TCP, "login", "rlogin and rsh: no password", false},
	{623, 623, packet.UDP, "asf-rmcp", "IPMI: the machine's own management", false},
	{631, 631, packet.TCP, "ipp", "printing", false},
	{873, 873, packet.TCP, "rsync", "rsync without encryption", false},
	{1433, 1433, packet.TCP, "ms-sql-s", "Microsoft SQL Server", false},
	{1521, 1521, packet.TCP, "", "Oracle Database", false},
	{2049, 2049, packet.TCP, "nfs", "NFS", false},
	{2049, 2049, packet.UDP, "nfs", "NFS", false},
	{2375, 2375, packet.TCP, "docker", "Docker's API without a password: root for anybody", false},
	{2376, 2376, packet.TCP, "docker-s", "Docker's API", false},
	{2379, 2379, packet.TCP, "etcd-client", "etcd: all data of a cluster", false},
	{2380, 2380, packet.TCP, "etcd-server", "etcd among its members", false},
	{3306, 3306, packet.TCP, "mysql", "MySQL and MariaDB", false},
	{3389, 3389, packet.TCP, "ms-wbt-server", "Remote Desktop", true},
	{4505, 4506, packet.TCP, "", "Salt's master", false},
	{5432, 5432, packet.TCP, "postgresql", "PostgreSQL", false},
	{5555, 5555, packet.TCP, "", "Android's debug bridge", false},
	{5900, 5903, packet.TCP, "rfb", "VNC", true},
	{5984, 5984, packet.TCP, "couchdb", "CouchDB", false},
	{5985, 5986, packet.TCP, "wsman", "Windows Remote Management", true},
	{6000, 6063, packet.TCP, "x11", "X Window System", false},
	{6379, 6379, packet.TCP, "redis", "Redis and Valkey", false},
	{6443, 6443, packet.TCP, "", "Kubernetes' API", true},
	{8006, 8006, packet.TCP, "", "Proxmox' web interface", true},
	{8086, 8086, packet.TCP, "", "InfluxDB", false},
	{8291, 8291, packet.TCP, "", "RouterOS' Winbox", true},
	{8500, 8500, packet.TCP, "", "Consul's API", false},
	{9042, 9042, packet.TCP, "", "Cassandra", false},
	{9090, 9090, packet.TCP, "", "Prometheus or Cockpit", true},
	{9100, 9100, packet.TCP, "", "Prometheus' node exporter, or printing", false},
	{9200, 9200, packet.TCP, "", "Elasticsearch and OpenSearch", false},
	{9300, 9300, packet.TCP, "", "Elasticsearch among its members", false},
	{10000, 10000, packet.TCP, "", "Webmin", true},
	{10050, 10050, packet.TCP, "zabbix-agent", "Zabbix' agent", false},
	{10250, 10250, packet.TCP, "", "Kubernetes' kubelet: commands in every container", false},
	{10255, 10255, packet.TCP, "", "Kubernetes' kubelet without a password", false},
	{11211, 11211, packet.TCP, "memcache", "memcached without a password", false},
	{11211, 11211, packet.UDP, "memcache", "memcached, which amplifies forged requests", false},
	{16509, 16509, packet.TCP, "", "libvirt without encryption", false},
	{27017, 27019, packet.TCP, "mongodb", "MongoDB", false},
}

// managed is a range of ports of management.
type managed struct {
	from, to  uint16
	protocol  uint8
	iana      string // registered name of the first port; "" where it is registered for something else or for nobody
	what      string
	withLimit bool // everybody asks for a password here, so that a limit per source is enough
}
