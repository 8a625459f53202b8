package controller

import (
	"maps"
	"slices"

	"sluice/internal/base/exposition"
	"sluice/internal/fleet/notices"
	"sluice/internal/fleet/store"
)

func (c *Controller) certificatesFamily() exposition.Family {
	out := family("host_certificates_ending")
	v, now, n := c.view.Load(), c.Now(), 0
	c.noticing.mutex.Lock()
	defer c.noticing.mutex.Unlock()
	for host, until := range c.noticing.certificates {
		if h, is := v.hosts[host]; is && h.Revoked.IsZero() && until.Sub(now) < nearCertificate {
			n++
		}
	}
	out.Add(float64(n), nil)
	return out
}

func (c *Controller) listsFamily() exposition.Family {
	out := family("list_age_seconds")
	rows := c.lists.rows.Load()
	if rows == nil {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(*rows)) {
		row := (*rows)[name]
		since := row.Checked
		if since.IsZero() {
			since = row.Failing
		}
		if !since.IsZero() && !row.Undone {
			out.Add(max(0, c.Now().Sub(since).Seconds()), map[string]string{"list": name})
		}
	}
	return out
}

func (c *Controller) noticesFamily() exposition.Family {
	out := family("notices")
	of := map[string]int{}
	for _, n := range c.openNotices() {
		of[n.Kind]++
	}
	for _, kind := range notices.Kinds() {
		out.Add(float64(of[kind]), map[string]string{"kind": kind})
	}
	return out
}

// openNotices are those that are open, as they were read last.
func (c *Controller) openNotices() []store.Notice {
	if open := c.noticing.open.Load(); open != nil {
		return *open
	}
	return nil
}

func (c *Controller) toldFamily(sent bool) exposition.Family {
	out := family("notices_failed_total")
	if sent {
		out = family("notices_sent_total")
	}
	c.noticing.mutex.Lock()
	defer c.noticing.mutex.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.noticing.told)) {
		n := c.noticing.told[name].failed
		if sent {
			n = c.noticing.told[name].sent
		}
		out.Add(float64(n), map[string]string{"receiver": name})
	}
	return out
}
