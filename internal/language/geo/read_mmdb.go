package geo

import (
	"fmt"
	"io"
	"strings"

	"github.com/oschwald/maxminddb-golang/v2"

	"sluice/internal/base/addrset"
)

// maxMMDB bounds what is read of a database of that format, which has to be in
// memory as a whole.
const maxMMDB = 1 << 29

// readMMDB reads a database in MaxMind's format. Networks of one country that
// follow each other are joined before they are added.
func readMMDB(r io.Reader, name string, t *Table, o *Origin) error {
	data, err := io.ReadAll(io.LimitReader(r, maxMMDB+1))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxMMDB {
		return fmt.Errorf("%s: the file is larger than %d MiB", name, maxMMDB>>20)
	}
	db, err := maxminddb.OpenBytes(data)
	if err != nil {
		return fmt.Errorf("%s: neither text nor a MaxMind database: %w", name, err)
	}
	defer func() { _ = db.Close() }()
	if o.Licence == "" {
		o.Source = db.Metadata.DatabaseType
	}
	if db.Metadata.BuildEpoch > 0 {
		o.Date = db.Metadata.BuildTime().UTC()
	}
	countries := make(mmdbCountries)
	var open addrset.Range
	var openCode string
	flush := func() error {
		if openCode == "" {
			return nil
		}
		return t.Add(open.From, open.To, openCode)
	}
	if !isTree(data, db.Metadata) {
		return fmt.Errorf("%s: damaged MaxMind database: it has no search tree", name)
	}
	networks := 0
	for result := range db.Networks() {
		if err := result.Err(); err != nil {
			return fmt.Errorf("%s: damaged MaxMind database: %w", name, err)
		}
		networks++
		code, err := countries.of(result)
		if err != nil {
			return fmt.Errorf("%s: network %s: %w", name, result.Prefix(), err)
		}
		if noCountry(code) {
			continue
		}
		r := addrset.PrefixRange(result.Prefix())
		if code == openCode && open.To.BitLen() == r.From.BitLen() && open.To.Next() == r.From {
			open.To = r.To
			continue
		}
		if err := flush(); err != nil {
			return fmt.Errorf("%s: network %s: %w", name, result.Prefix(), err)
		}
		open, openCode = r, code
	}
	if err := flush(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if networks > 0 && openCode == "" {
		return fmt.Errorf("%s: the MaxMind database of type %q has no countries", name, db.Metadata.DatabaseType)
	}
	return nil
}

// isTree reports whether no node of the search tree is reached in two ways, except
// for the root of the IPv4 addresses, which IPv6 networks that embed them may
// share (the reader walks it once). Walking anything else could take forever.
// Layout: https://maxmind.github.io/MaxMind-DB/#binary-search-tree-section
func isTree(data []byte, m maxminddb.Metadata) bool {
	children := func(node uint) [2]uint {
		size := m.RecordSize / 4
		b := data[node*size:][:size]
		switch m.RecordSize {
		case 24:
			return [2]uint{be(b[0:3]), be(b[3:6])}
		case 28:
			return [2]uint{uint(b[3]>>4)<<24 | be(b[0:3]), uint(b[3]&15)<<24 | be(b[4:7])}
		}
		return [2]uint{be(b[0:4]), be(b[4:8])}
	}
	if m.RecordSize/4*m.NodeCount > uint(len(data)) {
		return false
	}
	var root4 uint
	if m.IPVersion == 6 {
		for range 96 {
			if root4 >= m.NodeCount {
				break
			}
			root4 = children(root4)[0]
		}
	}
	reached := make([]bool, m.NodeCount)
	for node := range m.NodeCount {
		for _, c := range children(node) {
			switch {
			case c >= m.NodeCount:
			case c == 0, reached[c] && c != root4:
				return false
			default:
				reached[c] = true
			}
		}
	}
	return true
}

func be(b []byte) uint {
	var n uint
	for _, c := range b {
		n = n<<8 | uint(c)
	}
	return n
}

// mmdbCountries finds the country code of records. Networks share records, so
// each is decoded once.
type mmdbCountries map[uintptr]string

func (m mmdbCountries) of(r maxminddb.Result) (string, error) {
	if code, ok := m[r.Offset()]; ok {
		return code, nil
	}
	var record map[string]any
	if err := r.Decode(&record); err != nil {
		return "", err
	}
	code := strings.ToUpper(recordCountry(record))
	m[r.Offset()] = code
	return code, nil
}

// recordCountry returns the country code of a record, wherever the publisher
// put it: country.iso_code (MaxMind, DB-IP), registered_country.iso_code,
// country_code or country; "" where there is none.
func recordCountry(record map[string]any) string {
	for _, key := range [...]string{"country", "registered_country", "country_code"} {
		switch v := record[key].(type) {
		case map[string]any:
			if code, _ := v["iso_code"].(string); code != "" {
				return code
			}
		case string:
			// Some write the name here and the code in country_code.
			if len(v) <= 2 && v != "" {
				return v
			}
		}
	}
	return ""
}
