package geo

import (
	"bytes"
	"compress/gzip"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
	"github.com/oschwald/maxminddb-golang/v2"
)

// contents reads a source and returns its countries as text.
func contents(data []byte, name string) (string, Origin, error) {
	var t Table
	o, err := Read(bytes.NewReader(data), name, &t)
	if err != nil {
		return "", o, err
	}
	packed, err := t.Encode(o)
	if err != nil {
		return "", o, err
	}
	d, err := Decode(packed)
	if err != nil {
		return "", o, err
	}
	var out []string
	for _, c := range d.Info().Countries {
		s, err := d.Countries(c.Code)
		if err != nil {
			return "", o, err
		}
		out = append(out, c.Code+" "+s.String())
	}
	return strings.Join(out, "; "), o, nil
}

func gz(t testing.TB, data string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const smallWant = "NO 192.0.2.0/24, 2001:db8::/32; SE 198.51.100.0-198.51.100.9"

const delegatedText = `# comment
2.3|ripencc|1717200000|5|19830705|20260601|+0200
ripencc|*|ipv4|*|3|summary
ripencc|*|asn|*|1|summary
ripencc|*|ipv6|*|2|summary
ripencc|NO|ipv4|192.0.2.0|256|20100712|allocated|aaaa
ripencc|SE|ipv4|198.51.100.0|10|20100712|assigned
ripencc||ipv4|203.0.113.0|256||available|
ripencc|NO|asn|64500|1|20100712|allocated|aaaa
ripencc|NO|ipv6|2001:db8::|32|20100712|allocated|aaaa
ripencc|ZZ|ipv6|2001:db9::|32||reserved|
`

func TestReadFormats(t *testing.T) {
	dotted := "192.0.2.0,192.0.2.255,NO\n198.51.100.0,198.51.100.9,SE\n2001:db8::,2001:db8:ffff:ffff:ffff:ffff:ffff:ffff,NO\n"
	for what, data := range map[string][]byte{
		"dotted":               []byte(dotted),
		"gzip":                 gz(t, dotted),
		"no newline at end":    []byte(strings.TrimSuffix(dotted, "\n")),
		"Windows line ends":    []byte(strings.ReplaceAll(dotted, "\n", "\r\n")),
		"byte order mark":      []byte("\ufeff" + dotted),
		"quoted":               []byte("\"192.0.2.0\",\"192.0.2.255\",\"NO\",\"Norway, kingdom\"\n\"198.51.100.0\",\"198.51.100.9\",\"SE\"\n\"2001:db8::\",\"2001:db8:ffff:ffff:ffff:ffff:ffff:ffff\",\"NO\"\n"),
		"heading and comments": []byte("start_ip,end_ip,country\n# a comment\n\n" + dotted),
		"small letters":        []byte(strings.ToLower(dotted)),
		"unknown countries":    []byte("10.0.0.0,10.255.255.255,ZZ\n11.0.0.0,11.0.0.1,-\n12.0.0.0,12.0.0.1,\n" + dotted),
		"any order":            []byte("2001:db8::,2001:db8:ffff:ffff:ffff:ffff:ffff:ffff,NO\n198.51.100.0,198.51.100.9,SE\n192.0.2.0,192.0.2.255,NO\n"),
		"neighbours":           []byte("192.0.2.0,192.0.2.9,NO\n192.0.2.10,192.0.2.255,NO\n" + dotted),
		"IPv4-mapped":          []byte("::ffff:192.0.2.0,::ffff:192.0.2.255,NO\n198.51.100.0,198.51.100.9,SE\n2001:db8::,2001:db8:ffff:ffff:ffff:ffff:ffff:ffff,NO\n"),
		"numbers":              []byte("3221225984,3221226239,NO\n3325256704,3325256713,SE\n42540766411282592856903984951653826560,42540766490510755371168322545197776895,NO\n"),
		"IPv4-mapped numbers":  []byte("281473902969344,281473902969599,NO\n3325256704,3325256713,SE\n42540766411282592856903984951653826560,42540766490510755371168322545197776895,NO\n"),
		"delegated":            []byte(delegatedText),
		"delegated gzip":       gz(t, delegatedText),
		"mmdb":                 mmdb(t, isoCode),
		"mmdb of 28 bits":      mmdb(t, isoCode, 28),
		"mmdb of 32 bits":      mmdb(t, isoCode, 32),
		"mmdb flat":            mmdb(t, func(c string) mmdbtype.Map { return mmdbtype.Map{"country_code": mmdbtype.String(c)} }),
		"mmdb named": mmdb(t, func(c string) mmdbtype.Map {
			return mmdbtype.Map{"country": mmdbtype.String("The name"), "country_code": mmdbtype.String(c)}
		}),
		"mmdb registered only": mmdb(t, func(c string) mmdbtype.Map {
			return mmdbtype.Map{"country": mmdbtype.Map{}, "registered_country": mmdbtype.Map{"iso_code": mmdbtype.String(c)}}
		}),
	} {
		got, _, err := contents(data, "data")
		if err != nil || got != smallWant {
			t.Errorf("%s: %s, %v\nwant %s", what, got, err, smallWant)
		}
	}
}

func isoCode(c string) mmdbtype.Map {
	return mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(c)}}
}

// mmdb is smallWant in MaxMind's format.
func mmdb(t testing.TB, record func(code string) mmdbtype.Map, recordSize ...int) []byte {
	t.Helper()
	w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "Test-Country", IncludeReservedNetworks: true, BuildEpoch: 1780272000, RecordSize: append(recordSize, 24)[0]})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []struct{ prefix, code string }{
		{"192.0.2.0/25", "NO"}, {"192.0.2.128/25", "NO"}, {"198.51.100.0/29", "SE"}, {"198.51.100.8/31", "SE"}, {"2001:db8::/32", "NO"},
	} {
		_, network, err := net.ParseCIDR(n.prefix)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Insert(network, record(n.code)); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A search tree whose nodes share their children has 1<<60 leaves here.
func TestMMDBThatIsNoTree(t *testing.T) {
	data := mmdb(t, isoCode)
	db, err := maxminddb.OpenBytes(bytes.Clone(data))
	if err != nil {
		t.Fatal(err)
	}
	nodes, size := db.Metadata.NodeCount, db.Metadata.RecordSize
	if nodes < 62 || size != 24 {
		t.Fatalf("the test's database has %d nodes with records of %d bits", nodes, size)
	}
	for i := range uint(61) {
		child := i + 1
		if i == 60 {
			child = nodes + 16
		}
		record := []byte{byte(child >> 16), byte(child >> 8), byte(child)}
		copy(data[i*6:], slices.Concat(record, record))
	}
	_, _, err = contents(data, "data")
	if err == nil || err.Error() != "data: damaged MaxMind database: it has no search tree" {
		t.Errorf("error %v", err)
	}
}

func TestReadErrors(t *testing.T) {
	noCountry := mmdb(t, func(string) mmdbtype.Map { return mmdbtype.Map{"asn": mmdbtype.Uint32(64500)} })
	for _, c := range []struct{ data, want string }{
		{"", "data: the file is empty"},
		{" \n\n", "data: the file is empty"},
		{"# nothing\n", "data: the file has no ranges of countries"},
		{"10.0.0.0,10.0.0.1,ZZ\n", "data: the file has no ranges of countries"},
		{"<!DOCTYPE html>\n", "data: the file is a web page, not country data"},
		{"PK\x03\x04xxxx", "data: the file is a zip archive\nhint: unpack it and give the file inside"},
		{string(gz(t, "")), "data: the file is empty"},
		{string(gz(t, "192.0.2.0,192.0.2.255,NO\n")[:20]), "data: unexpected EOF"},
		{"\x1f\x8bxx", "data: unexpected EOF"},
		{"192.0.2.0,192.0.2.255,NO\n192.0.2.0;192.0.2.255;NO\n", `data:2: expected start,end,country, found "192.0.2.0;192.0.2.255;NO"`},
		{"192.0.2.0,192.0.2.255,NO\n198.51.100.0,198.51.1", `data:2: expected start,end,country, found "198.51.100.0,198.51.1"`},
		{"192.0.2.0,192.0.2.256,NO\n", `data:1: "192.0.2.256" is not an IP address`},
		{"192.0.2.0,2001:db8::,NO\n", "data:1: range from 192.0.2.0 to 2001:db8:: mixes IPv4 and IPv6"},
		{"192.0.2.9,192.0.2.1,NO\n", "data:1: range from 192.0.2.9 to 192.0.2.1 is reversed"},
		{"::,::ffff:192.0.2.1,NO\n", "data:1: the range from :: to ::ffff:192.0.2.1 begins or ends among IPv4-mapped addresses"},
		{"9,1,NO\n", "data:1: range from 9 to 1 is reversed"},
		{"fe80::1%eth0,fe80::2,NO\n", `data:1: "fe80::1%eth0" is not an IP address`},
		{"192.0.2.0,192.0.2.1,NOR\n", `data:1: "NOR" is not a country code of two letters`},
		{"192.0.2.0,192.0.2.1,N1\n", `data:1: "N1" is not a country code of two letters`},
		{"1,340282366920938463463374607431768211456,NO\n", "data:1: a number is larger than any IPv6 address"},
		{"1,99999999999999999999999999999999999999999999,NO\n", "data:1: a number is larger than any IPv6 address"},
		{"start,end,country\nfirst,last,cc\n", `data:2: "first" is not an IP address`},
		{strings.Repeat("1", 70000), "data:1: the line has more than 65536 bytes"},
		{strings.Replace(delegatedText, "ripencc|SE", "nobody|SE", 1), `data:7: expected registry|country|type|start|value|date|status, found "nobody|SE|ipv4|198.51.100.0|10|20100712|assigned"`},
		{strings.Replace(delegatedText, "198.51.100.0|10", "198.51.100.0|0", 1), `data:7: "0" is not a number of addresses or a prefix length`},
		{strings.Replace(delegatedText, "198.51.100.0|10", "198.51.100.0|4294967296", 1), "data:7: 4294967296 addresses from 198.51.100.0 go beyond the last address"},
		{strings.Replace(delegatedText, "198.51.100.0|10", "2001:db8::|10", 1), `data:7: "2001:db8::" is not an address of ipv4`},
		{strings.Replace(delegatedText, "2001:db8::|32", "2001:db8::|31", 1), ""},
		{strings.Replace(delegatedText, "2001:db8::|32", "2001:db8::|28", 1), "data:10: 2001:db8::/28 is not an IPv6 prefix"},
		{strings.Replace(delegatedText, "2001:db8::|32", "2001:db8::|129", 1), "data:10: 2001:db8::/129 is not an IPv6 prefix"},
		{strings.Replace(delegatedText, "|asn|64500", "|asx|64500", 1), `data:9: "asx" is not ipv4, ipv6 or asn`},
		{strings.Replace(delegatedText, "*|3|", "*|x|", 1), `data:3: the summary counts "x" records`},
		{strings.Replace(delegatedText, "2.3|ripencc", "2.3|nobody", 1), `data:2: "nobody" is not a registry (afrinic, apnic, arin, lacnic, ripencc, iana, nro)`},
		{delegatedText[:strings.Index(delegatedText, "ripencc|ZZ|ipv6")], "data:10: the file is truncated or damaged: its summary counts 2 ipv6 records, but it has 1"},
		{"\x00\x01\x02", "data: neither text nor a MaxMind database: "},
		{string(noCountry), `data: the MaxMind database of type "Test-Country" has no countries`},
		{string(mmdb(t, isoCode)[:300]), "data: neither text nor a MaxMind database: "},
	} {
		_, _, err := contents([]byte(c.data), "data")
		switch {
		case c.want == "":
			if err != nil {
				t.Errorf("%.60q: %v", c.data, err)
			}
		case err == nil, strings.HasSuffix(c.want, ": ") && !strings.HasPrefix(err.Error(), c.want),
			!strings.HasSuffix(c.want, ": ") && err.Error() != c.want:
			t.Errorf("%.60q: error %v\nwant %s", c.data, err, c.want)
		}
	}
}

func TestOriginOfSources(t *testing.T) {
	day := func(s string) time.Time {
		d, err := time.Parse(time.DateOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const csv = "192.0.2.0,192.0.2.255,NO\n"
	for _, c := range []struct {
		name, data, source, licence string
		date                        time.Time
	}{
		{"dir/dbip-country-lite-2026-06.csv.gz", string(gz(t, csv)), "DB-IP Lite", "CC-BY-4.0", day("2026-06-01")},
		{"dbip-country-ipv4.csv", csv, "DB-IP Lite", "CC-BY-4.0", time.Time{}},
		{"countries-20260617.csv", csv, "countries-20260617.csv", "", day("2026-06-17")},
		{"delegated-ripencc-extended-latest", delegatedText, "delegated addresses of ripencc", "", day("2026-06-01")},
		{"countries.mmdb", string(mmdb(t, isoCode)), "Test-Country", "", day("2026-06-01")},
		{"dbip-country-lite.mmdb", string(mmdb(t, isoCode)), "DB-IP Lite", "CC-BY-4.0", day("2026-06-01")},
	} {
		_, o, err := contents([]byte(c.data), c.name)
		if err != nil || o.Source != c.source || o.Licence != c.licence || !o.Date.Equal(c.date) || (o.Attribution != "") != (c.licence != "") {
			t.Errorf("%s: %+v, %v", c.name, o, err)
		}
	}
}

// fuzzRead feeds a reader and checks that what it took can be encoded, decoded
// and asked.
func fuzzRead(f *testing.F, read func(data []byte, t *Table) error) {
	f.Helper()
	f.Fuzz(func(t *testing.T, data []byte) {
		var table Table
		if err := read(data, &table); err != nil {
			if !strings.HasPrefix(err.Error(), "data:") {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		if table.Rows() == 0 {
			return
		}
		packed, err := table.Encode(Origin{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := Decode(packed)
		if err != nil {
			t.Fatal(err)
		}
		for i, rows := range [][]row{table.v4, table.v6} {
			for _, r := range rows {
				for _, n := range []num{r.from, r.to} {
					if _, ok, err := d.Find(n.Addr(i == 0)); !ok || err != nil {
						t.Fatalf("%s has no country: %v", n.Addr(i == 0), err)
					}
				}
			}
		}
	})
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{"192.0.2.0,192.0.2.255,NO\n", "\"192.0.2.0\",\"192.0.2.9\",\"no\"", "1,2,SE\n281473902969344,281473902969599,NO", "2001:db8::,2001:db8::1,NO", "a,b,c\n::,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,NO\n::1,::2,SE"} {
		f.Add([]byte(s))
	}
	fuzzRead(f, func(data []byte, t *Table) error { return readCSV(bytes.NewReader(data), "data", t) })
}

func FuzzDelegated(f *testing.F) {
	f.Add([]byte(delegatedText))
	f.Add([]byte("ripencc|NO|ipv4|0.0.0.0|4294967296|20100712|allocated\n"))
	fuzzRead(f, func(data []byte, t *Table) error {
		return readDelegated(bytes.NewReader(data), "data", t, &Origin{})
	})
}

func FuzzMMDB(f *testing.F) {
	f.Add(mmdb(f, isoCode))
	fuzzRead(f, func(data []byte, t *Table) error { return readMMDB(bytes.NewReader(data), "data", t, &Origin{}) })
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(delegatedText))
	f.Add(gz(f, "192.0.2.0,192.0.2.255,NO\n"))
	f.Add([]byte("\ufeff192.0.2.0,192.0.2.255,NO\n"))
	f.Add([]byte("<html>"))
	fuzzRead(f, func(data []byte, t *Table) error {
		_, err := Read(bytes.NewReader(data), "data", t)
		return err
	})
}

func TestParseNum(t *testing.T) {
	for s, want := range map[string]string{
		"0": "::", "4294967296": "::1:0:0", "340282366920938463463374607431768211455": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		"18446744073709551616": "0:0:0:1::", "000": "::",
	} {
		n, err := parseNum(s)
		if err != nil || n.Addr(false) != netip.MustParseAddr(want) {
			t.Errorf("%s is %v, %v; want %s", s, n.Addr(false), err, want)
		}
	}
}
