// Command gen makes the built-in snapshot of internal/language/geo from the dataset
// geo-whois-asn-country, which scripts/fetch-geo-data fetches. The same dataset
// gives the same bytes.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
	"time"

	"sluice/internal/language/geo"
)

// The version that scripts/fetch-geo-data names. The package says CC0-1.0 of
// itself; the registries' data in it are CC-BY-4.0, so both are stated.
const (
	date        = "2026-06-17"
	source      = "geo-whois-asn-country"
	licence     = "CC0-1.0 (registry data in it: CC-BY-4.0)"
	attribution = "Contains data of the Number Resource Organization (https://www.nro.net), CC-BY-4.0"
)

func main() {
	in := flag.String("in", filepath.Join("..", "..", "..", ".cache", "geo", source), "`directory` of the dataset")
	out := flag.String("o", "snapshot.bin", "`file` to write")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	if err := run(*in, *out); err != nil {
		log.Fatal(err)
	}
}

func run(in, out string) error {
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return err
	}
	origin := geo.Origin{Source: source, Licence: licence, Attribution: attribution, Date: day}
	var t geo.Table
	for _, name := range [...]string{source + "-ipv4.csv", source + "-ipv6.csv"} {
		if err := read(filepath.Join(in, name), &t); err != nil {
			return err
		}
		origin.From = append(origin.From, name)
	}
	data, err := t.Encode(origin)
	if err != nil {
		return err
	}
	log.Printf("%s: %d bytes of %d ranges, %d of them over another country's", out, len(data), t.Rows(), t.Overlaps)
	return os.WriteFile(out, data, 0o644)
}

func read(name string, t *geo.Table) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = geo.Read(f, filepath.Base(name), t)
	return err
}
