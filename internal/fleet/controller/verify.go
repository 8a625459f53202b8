package controller

import (
	"context"
	"net/http"
	"time"

	"sluice/internal/base/turns"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
)

// verifying is the last look at the whole audit.
type verifying struct {
	turns *turns.Turns
	head  string // that it was asked for
	last  api.AuditVerified
}

// verifyAgain is how old what was read may be for whoever asks next: all of it is read.
const verifyAgain = 10 * time.Second

// VerifyAudit says whether the audit is intact.
func (o operator) VerifyAudit(w http.ResponseWriter, r *http.Request, params api.VerifyAuditParams) {
	var kept []store.Head
	for _, text := range []string{params.Head, o.online.State().AuditHead} {
		if text == "" {
			continue
		}
		head, err := store.ParseHead(text)
		if err != nil {
			o.done(w, nil, wrong("%v", err))
			return
		}
		kept = append(kept, head)
	}
	out, err := o.verifying.look(r.Context(), o, as(r), params.Head, kept)
	o.done(w, out, err)
}

// look reads all of it where nobody has of late.
func (is *verifying) look(ctx context.Context, o operator, who caller, asked string, kept []store.Head) (out api.AuditVerified, err error) {
	leave, err := is.turns.Take(ctx, who.principal())
	if err != nil {
		return out, err
	}
	defer leave()
	if since := o.Now().Sub(is.last.At); is.last.Head == "" || is.head != asked || since > verifyAgain || since < 0 {
		at := o.Now().UTC()
		found, err := o.Store.Verify(ctx, kept...)
		o.answered(err)
		if err != nil {
			return out, err
		}
		is.head, is.last = asked, api.AuditVerified{At: at, Entries: found.Entries, Head: found.Head.String(), Whole: len(found.Findings) == 0, Findings: []string{}}
		if found.Floor.Seq > 0 {
			is.last.Floor = found.Floor.String()
		}
		for _, f := range found.Findings {
			if is.last.BrokenAt == 0 || f.Seq < is.last.BrokenAt {
				is.last.BrokenAt = f.Seq
			}
			is.last.Findings = append(is.last.Findings, f.What)
		}
	}
	return is.last, nil
}
