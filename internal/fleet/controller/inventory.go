package controller

import (
	"net/http"

	"sluice/internal/fleet/api"
	"sluice/internal/fleet/wire"
)

// Inventory is what the file inventory.yaml says of the hosts that a caller may see. It is
// read from the store, which has the facts that hosts sent to other controllers too.
func (o operator) Inventory(w http.ResponseWriter, r *http.Request) {
	out := api.Inventory{Hosts: []api.InventoryHost{}}
	hosts, err := o.Store.Hosts(r.Context())
	for _, h := range hosts {
		if h.Revoked.IsZero() && as(r).sees(h.ID, h.Labels) {
			out.Hosts = append(out.Hosts, api.InventoryHost{Host: h.ID, Labels: h.Labels, Addresses: h.Addresses, Facts: h.Facts})
		}
	}
	o.done(w, out, err)
}

// Facts gives those of a host as it sent them.
func (o operator) Facts(w http.ResponseWriter, r *http.Request, hash string) {
	hosts, err := o.Store.Hosts(r.Context())
	for _, h := range hosts {
		if h.Facts != hash || !h.Revoked.IsZero() || !as(r).sees(h.ID, h.Labels) {
			continue
		}
		text, err := o.Store.Facts(r.Context(), hash)
		if err != nil {
			o.done(w, nil, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
		return
	}
	if err == nil {
		err = &wire.Failure{Text: "no host has these facts", Kind: wire.KindNotFound}
	}
	o.done(w, nil, err)
}
