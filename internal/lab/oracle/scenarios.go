package main

// scenario is what the older program does on a host, and what is then done by either.
// A line is a command of sluice, or one of these, for what happens beside it:
//
//	!flush          another tool takes all rules away
//	!boot           the host is new; the state is what it was
//	!list TEXT      the web server has this list from now on
//	!address A/N    the host gets one more address
//	!damage FILE    the file of the state holds something else
//	!wait           until no policy waits for a confirmation
type scenario struct{ name, before, after string }

var scenarios = []scenario{
	{"history", `
		apply one.yaml --no-confirm
		apply two.yaml --no-confirm
		apply one.yaml --passes=-verdict-maps --no-confirm`, `
		status
		history
		diff one.yaml
		history 2
		verify --json
		plan two.yaml --json
		diff two.yaml --json
		query --allowed --service ssh --json
		explain --src 203.0.113.7 --dport 22 --live --json
		apply one.yaml
		rollback
		status
		rollback 1 --no-confirm
		verify
		history
		remove
		status
		restore`},
	{"bans", `
		apply one.yaml --no-confirm
		ban 192.0.2.77 --for 1h --reason "forty bad passwords"
		ban 192.0.2.128/25 2001:db8:bad::/48
		ban 192.0.2.9 192.0.2.10
		unban 192.0.2.10`, `
		bans
		status
		verify
		ban 192.0.2.200 --for 2h
		ban 10.20.0.1 203.0.113.8
		unban 192.0.2.9
		bans
		unban 192.0.2.9
		apply two.yaml --no-confirm
		bans
		!flush
		restore
		bans
		verify`},
	{"a trial that is confirmed", `
		apply one.yaml --no-confirm
		apply two.yaml --confirm 10m`, `
		status
		apply one.yaml
		confirm
		status
		confirm
		history
		verify`},
	{"a trial that is rolled back", `
		apply one.yaml --no-confirm
		ban 192.0.2.77 --for 1h
		apply two.yaml --confirm 10m`, `
		status
		plan one.yaml --json
		rollback
		status
		bans
		verify`},
	{"a first trial that is rolled back", `
		apply two.yaml --confirm 10m`, `
		status
		rollback
		status
		history`},
	{"a trial that runs out", `
		apply one.yaml --no-confirm
		apply two.yaml --confirm 15s
		!wait`, `
		status
		history
		verify`},
	{"a trial at boot", `
		apply one.yaml --no-confirm
		ban 192.0.2.77
		apply two.yaml --confirm 10m
		!boot`, `
		restore
		status
		bans
		verify
		history`},
	{"boot", `
		!list 192.0.2.200
		apply listed.yaml --no-confirm
		ban 192.0.2.77 --for 1h
		ban 2001:db8:bad::/64
		!boot`, `
		status
		restore
		history
		restore
		status
		bans
		verify
		sync
		!flush
		status
		verify
		restore
		verify`},
	{"lists", `
		!list 192.0.2.200
		apply listed.yaml --no-confirm
		!list 192.0.2.200 192.0.2.201 2001:db8:7::/64
		refresh`, `
		status
		verify
		refresh
		!list 192.0.2.201 192.0.2.202
		refresh --dry-run
		refresh
		status
		verify
		plan listed.yaml --json
		apply listed.yaml
		rollback`},
	{"another address", `
		apply two.yaml --no-confirm
		!address 198.51.100.17/24`, `
		status
		verify
		sync
		status
		verify
		ban 198.51.100.0/24`},
	{"a damaged state", `
		apply one.yaml --no-confirm
		ban 192.0.2.77
		!damage current.json
		!boot`, `
		status
		restore
		status
		history
		apply one.yaml --no-confirm
		status
		bans
		verify`},
}

// hostPolicies are what the scenarios apply.
var hostPolicies = map[string]string{
	"one.yaml": `version: 1
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
  banned: { file: banned.txt, counters: true }
ban: [banned]
never-ban: [203.0.113.8]
input:
  default: drop log "in"
  rules:
    - allow ssh from office limit 10/minute per source then ban 10m
    - allow [http, https]
    - allow tcp/8080 from 192.0.2.0/24
    - allow tcp/8081 from 198.51.100.0/24
    - allow tcp/8082 from 203.0.113.0/24
output:
  default: allow
  rules:
    - reject smtp
`,
	"two.yaml": `version: 1
zones:
  wan: { interfaces: [default-route] }
  lan: { interfaces: [lan0], networks: [10.20.0.0/24, "2001:db8:20::/64"] }
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
tracking:
  bypass: [dns]
input:
  default: reject
  rules:
    - allow ssh from office max 20 connections per source
    - allow dns
forward:
  default: drop
  accelerate: true
  rules:
    - allow any from lan to wan
nat:
  - masquerade from lan out wan ipv4
  - redirect tcp/8080 in wan to 10.20.0.5:80
`,
	"listed.yaml": `version: 1
sets:
  scanners: { url: "http://127.0.0.1:8000/list", refresh: 1h }
  italy: { countries: [SM, VA] }
ban: [scanners]
input:
  default: drop
  rules:
    - allow ssh
    - allow http from italy
`,
	"banned.txt": "192.0.2.1\n192.0.2.64/28\n2001:db8:99::/64\n",
}
