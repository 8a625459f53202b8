package kernelbench

import (
	"sluice/internal/lab/figures"
	"sluice/internal/lab/packetbench"
)

// everyKind is a router that has every kind of packet, on the devices of a lab.
const everyKind = `version: 1
zones:
  wan: {interfaces: [eth0]}
  lan: {interfaces: [eth1]}
sets:
  office: [203.0.113.0/24, "2001:db8:77::/48"]
ban: [203.0.113.7, "2001:db8:bad::/48"]
tracking:
  bypass: [http]
input:
  default: drop
  rules:
    - allow http
    - allow ssh from office
    - allow tcp/81
forward:
  default: drop
  rules:
    - allow any from lan to wan
    - allow https from wan to lan
    - allow tcp/9090 to 10.9.9.8
    - allow tcp/9090 to 2001:db8:9::8
    - allow tcp/9091 to 10.9.8.8
nat:
  - masquerade from lan out wan
  - redirect tcp/8080 in wan to :81
  - map 198.51.100.16/28 to 10.9.9.0/28 stateless
  - map 198.51.100.32/28 to 10.9.8.0/28
  - map 2001:db8:8::/64 to 2001:db8:9::/64 stateless
`

// kinds measures every kind of packet under Sluice: a row a kind.
func (b *bench) kinds() error {
	file, err := b.file("every-kind.yaml", everyKind)
	if err != nil {
		return err
	}
	r, err := packetbench.Run(b, b.options(file, "kinds"))
	if err != nil {
		return err
	}
	s := figures.Section{Name: "kinds", Title: "Every kind of packet, under Sluice"}
	for _, from := range r.Sections {
		s.Text = append(s.Text, cases(from.Text)...)
		for _, f := range from.Figures {
			switch {
			case f.Quantity == packetbench.Added:
			case f.Quantity == packetbench.Whole && f.Subject == packetbench.Bare:
				f.Quantity = "bare stack, per packet"
			default:
				continue
			}
			s.Add(figures.Figure{Case: f.Case, Subject: b.kernel, Quantity: f.Quantity, Unit: b.unit, Samples: f.Samples, Note: f.Note})
		}
	}
	b.keep(s, r)
	return nil
}
