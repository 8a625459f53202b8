package store

import (
	"fmt"
	"testing"
	"time"
)

// TestDrafts: a draft is kept once, with its entry of the audit, until somebody removes it or three
// months are over; nobody fills the database with them.
func TestDrafts(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx, now := t.Context(), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		fleet(t, s)
		s.Now = func() time.Time { return now }
		draft := func(who string, n int) Draft {
			return Draft{
				ID: fmt.Sprint(who, n), Title: "a\x00b", Who: who, Bundle: 7, Texts: map[string]string{"parts/a.yaml": "version: 1\n", "parts/b.yaml": ""},
				DraftBody: DraftBody{Files: []DraftFile{{Name: "parts/a.yaml", Before: "x", SHA256: "y"}}, Opens: true, Summary: []string{"opens tcp/22"}},
			}
		}
		if all := good[[]Draft](t)(s.Drafts(ctx)); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		made := good[Draft](t)(s.Propose(ctx, draft("erika", 1)))
		want := draft("erika", 1)
		want.Title, want.Made = plain("a\x00b"), now
		same(t, "made", made, want)
		same(t, "kept", good[Draft](t)(s.Draft(ctx, "erika1")), want)
		now = now.Add(time.Hour)
		again := draft("erika", 1)
		again.Who = "otto"
		same(t, "once more", good[Draft](t)(s.Propose(ctx, again)), want)
		for n := 2; n <= mostDraftsOf; n++ {
			good[Draft](t)(s.Propose(ctx, draft("erika", n)))
		}
		_, err := s.Propose(ctx, draft("erika", 99))
		is(t, "too many of one", err, ErrTooMany)
		for n := range mostDrafts - mostDraftsOf {
			good[Draft](t)(s.Propose(ctx, draft(fmt.Sprint("user", n%7, "-"), n)))
		}
		_, err = s.Propose(ctx, draft("otto", 1))
		is(t, "too many", err, ErrTooMany)
		is(t, "remove", s.RemoveDraft(ctx, "erika", "erika2"), nil)
		is(t, "remove twice", s.RemoveDraft(ctx, "erika", "erika2"), ErrNotFound)
		good[Draft](t)(s.Propose(ctx, draft("otto", 1)))
		all := good[[]Draft](t)(s.Drafts(ctx))
		if len(all) != mostDrafts || all[len(all)-1].ID != "erika1" || all[0].Texts != nil {
			t.Errorf("%d, %+v", len(all), all[len(all)-1])
		}
		now = now.Add(draftFor - time.Minute)
		is(t, "prune", s.PruneDrafts(ctx), nil)
		_, err = s.Draft(ctx, "erika1")
		is(t, "of three months ago", err, ErrNotFound)
		good[Draft](t)(s.Draft(ctx, "otto1"))
		what := map[string]int{}
		is(t, "audit", s.EachEntry(ctx, 0, func(e Entry) error { what[e.What]++; return nil }), nil)
		if what["draft.create"] != mostDrafts+1 || what["draft.remove"] != 1 {
			t.Errorf("%v", what)
		}
	})
}
