package geo

import (
	"fmt"
	"io"
	"strings"

	"github.com/oschwald/maxminddb-golang/v2"

	"sluice/internal/addrset"
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
	defer db.Close()
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
		return fmt.Errorf("%s: MaxMind database of type %q has no countries in it", name, db.Metadata.DatabaseType)
	}
	return nil
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
