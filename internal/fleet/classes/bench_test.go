package classes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/engine"
	"sluice/internal/fleet/inventory"
)

// generate writes a fleet of 500 parts: 20 of every host and 16 of each of 30 roles, with a
// set, three rules and an expectation each. Each host has facts of its own.
func generate(tb testing.TB, hosts int, https string) string {
	tb.Helper()
	dir := tb.TempDir()
	write := func(name, format string, args ...any) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(file, fmt.Appendf(nil, format, args...), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	var sets, list strings.Builder
	const roles = 30
	for r := range roles {
		fmt.Fprintf(&sets, "  r%d: { hosts: role=r%d, within: [10.0.0.0/8, \"2001:db8::/32\"] }\n", r, r)
	}
	write("fleet.yaml", "version: 1\nfleet: example.net\nparts: [parts/*.yaml]\nsets:\n%s", &sets)
	for n := range 20 {
		extra := ""
		if n == 0 {
			extra = "default: drop, "
		}
		write(fmt.Sprintf("parts/base-%02d.yaml", n), `version: 1
sets: { office%[1]d: [198.51.100.%[1]d, "2001:db8:5:%[1]d::/64"] }
input: { %[2]srules: [allow tcp/%[3]d from office%[1]d, "allow udp/%[3]d from [office%[1]d, 192.0.2.%[1]d]", drop tcp/%[4]d] }
expect: [deny tcp/%[3]d from not office%[1]d]
`, n, extra, 2000+n, 3000+n)
	}
	for r := range roles {
		for n := range 16 {
			write(fmt.Sprintf("parts/r%02d-%02d.yaml", r, n), `version: 1
hosts: role=r%[1]d
sets: { clients%[1]d-%[2]d: [10.%[2]d.0.0/16, 192.0.2.%[2]d] }
input: { rules: ["allow %[6]s from clients%[1]d-%[2]d", allow tcp/%[3]d from r%[4]d, allow udp/%[5]d] }
expect: [allow tcp/%[3]d from r%[4]d on input]
`, r, n, 4000+n, (r+n)%roles, 5000+n, strings.Replace(https, "PORT", fmt.Sprint(6000+n), 1))
		}
	}
	list.WriteString("version: 1\nhosts:\n")
	for h := range hosts {
		a := fmt.Sprintf("10.200.%d.%d", h/250, h%250+1)
		fmt.Fprintf(&list, "  h%05d: { labels: {role: r%d, env: prod, rack: k%d}, addresses: [%s], facts: facts/h%05d.json }\n", h, h%roles, h%97, a, h)
		write(fmt.Sprintf("facts/h%05d.json", h), `{"version":1,"known":true,"interfaces":[{"name":"lo","index":1,"addresses":["127.0.0.1/8","::1/128"],"kind":"loopback","up":true,"mtu":65536},{"name":"ens3","index":2,"addresses":["%[1]s/16","2001:db8:9::%[2]x/64","fe80::%[2]x/64"],"kind":"device","up":true,"mtu":1500}],"default-route":["ens3"],"local":["127.0.0.0/8","%[1]s/32","::1/128","2001:db8:9::%[2]x/128","fe80::%[2]x/128"],"ephemeral-from":32768,"ephemeral-to":60999,"conntrack-max":262144,"conntrack-buckets":65536,"memory-bytes":%[3]d,"resolvers":["10.200.255.1"]}`, a, h+1, 8300000000+h)
	}
	write("inventory.yaml", "%s", &list)
	return dir
}

func open(tb testing.TB, dir string) *Fleet {
	tb.Helper()
	inv, err := inventory.Load(filepath.Join(dir, InventoryFile))
	if err != nil {
		tb.Fatal(err)
	}
	f, err := Read(dir, nil, inv, &engine.Sources{State: tb.TempDir(), Offline: true})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// processor is how many seconds of processor time the process has taken.
func processor(tb testing.TB) float64 {
	tb.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

// What "sluice-controller check" takes for 500 parts in 30 classes.
func BenchmarkCheck(b *testing.B) {
	for _, hosts := range []int{60, 10_000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			dir := generate(b, hosts, "tcp/PORT")
			before := processor(b)
			for b.Loop() {
				f := open(b, dir)
				list, found, err := f.Classes(context.Background())
				if err != nil || len(found) > 0 || len(list) != 30 {
					b.Fatal(len(list), found, err)
				}
				if found, err = f.Check(context.Background(), list, func(*Class) {}); err != nil || len(found) > 0 {
					b.Fatal(found, err)
				}
			}
			b.ReportMetric((processor(b)-before)/float64(b.N), "processor-s/op")
		})
	}
}

// What "sluice-controller diff" takes for 10,000 hosts in 30 classes, all of which change.
func BenchmarkDiff(b *testing.B) {
	old, next := generate(b, 10_000, "tcp/PORT"), generate(b, 10_000, "[tcp/PORT, tcp/8443]")
	before := processor(b)
	for b.Loop() {
		var fleets [2]*Fleet
		var lists [2][]*Class
		for i, dir := range []string{old, next} {
			fleets[i] = open(b, dir)
			var err error
			if lists[i], _, err = fleets[i].Classes(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		d, err := fleets[1].Compare(context.Background(), lists[1], fleets[0], lists[0], func(*Class) {})
		if err != nil || d.Unchanged > 0 || !d.Opens() {
			b.Fatal(d, err)
		}
	}
	b.ReportMetric((processor(b)-before)/float64(b.N), "processor-s/op")
}
