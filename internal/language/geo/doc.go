// Package geo turns countries and continents into sets of addresses. resolve
// asks it for the sets of a policy; the geo commands update and show its data.
//
// Words:
//
//   - A source is a file that somebody publishes: ranges of addresses, each with
//     a country. [Read] reads the usual formats, row by row.
//   - A table is what the rows of one or more sources come to: disjoint ranges
//     in order, each of one country. Where rows overlap the narrower one holds,
//     and of two of the same size the one read later.
//   - A database is a table in its compact form (format.go), with where it comes
//     from, its date, its licence and its counts. It is decoded when asked, and
//     only what is asked for is built.
//
// A database lies in the state directory once `sluice geo update` has put it
// there, beside the one before it; until then the built-in snapshot is used.
//
//	source files ─Read▶ Table ─Encode▶ database ─Countries, Continents▶ addrset.Set
//
// Countries are ISO 3166-1 codes of two letters. Continents are the seven codes
// AF AN AS EU NA OC SA. Names and containment are those of golang.org/x/text
// (UN M49, with Kosovo in Europe), except for two things in which country data
// and users follow the ISO and GeoNames habit instead: Cyprus is in Europe, and
// Antarctica (AN) is a continent of its own with AQ, BV, GS, HM and TF.
package geo
