// Package xtables reads what "iptables-save -c" and "ip6tables-save -c" print, of the
// legacy kernel interface or of nf_tables, with or without counters. doctor calls it
// through importer.
//
// All tables of one text become one program. Each chain bears its table's name, as in
// "filter/INPUT", and each rule is counted, as the kernel does (struct ipt_entry).
//
//	parse.go   lines: tables, chains, counters, rules; jumps that lead in a circle
//	words.go   one line into words, by the quotes of xtables_save_string
//	rule.go    words into matches and a target, each with its options
//	match.go   one match into conditions, or why not
//	target.go  a target into actions, or why not
//
// The meaning of options is that of iptables-extensions(8), and of net/netfilter/xt_*.c
// where that page is silent.
package xtables
