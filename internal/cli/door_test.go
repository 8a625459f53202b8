package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"sluice/internal/agent/api"
	"sluice/internal/agent/work"
	"sluice/internal/base/exposition"
	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/language/bans"
	"sluice/internal/language/geo"
)

// wire is a host whose answers have gone through JSON, as those of another process have.
type wire struct {
	*engine.Host
	here string
}

// wired is the copy of an answer, read strictly, which says in JSON what the answer says.
func wired[T any](w wire, v T, failed error) (out T, err error) {
	if out, err = survives(v); err == nil && failed != nil {
		var f *api.Failure
		errors.As(work.Failed(failed, w.here, nil), &f)
		err, _ = survives(f)
	}
	return out, err
}

func survives[T any](v T) (out T, err error) {
	sent, err := json.Marshal(v)
	if err != nil {
		return out, err
	}
	in := json.NewDecoder(bytes.NewReader(sent))
	in.DisallowUnknownFields()
	if err := in.Decode(&out); err != nil {
		return out, fmt.Errorf("%T does not survive JSON: %w\n%s", v, err, sent)
	}
	again, err := json.Marshal(out)
	if err == nil && !bytes.Equal(sent, again) {
		err = fmt.Errorf("%T does not survive JSON:\n%s\n%s", v, sent, again)
	}
	if name, is := served[fmt.Sprintf("%T", v)]; is && err == nil && string(sent) != "null" {
		err = described(name, sent)
	}
	return out, err
}

// served are the schemas of what the local API answers.
var served = map[string]string{
	"*apply.Status": "Status", "*engine.Verified": "Verified", "*apply.History": "History", "*apply.Text": "Text", "[]apply.BanEntry": "Bans", "[]exposition.Family": "Metrics", "[]apply.PastBan": "PastBans",
	"*apply.Banned": "Banned", "[]engine.AllowEntry": "Allows", "*engine.Allowed": "Allowed", "*apply.Synced": "Synced", "*apply.Outcome": "Outcome", "*api.Failure": "Failure",
	"*engine.Plan": "Plan", "*engine.Explained": "Explained", "*engine.Queried": "Queried", "*engine.Refreshed": "Refreshed", "*geo.UpdateResult": "CountriesUpdated",
	"engine.Logged": "Logged", "engine.Dropped": "DroppedPacket", "engine.DropCounts": "DropCounts", "*engine.DropCounts": "DropCounts", "engine.WatchedEntry": "WatchedEntry", "*engine.WatchedEntries": "WatchedEntries", "*engine.LogAnswer": "LogAnswer",
	"*engine.TablePlan": "TablePlan", "*apply.Tuned": "Tuned",
	"*engine.Checked": "Checked", "*query.Report": "Diff", "*query.Map": "Map", "*query.Matrix": "Reach", "*host.Facts": "Facts", "*doctor.Report": "DoctorReport",
	"*engine.Top": "Top", "*engine.TopAnswer": "TopAnswer",
}

// described says whether JSON is what the document of the local API says of it, with no
// field that is not named there.
func described(name string, value []byte) error {
	return describedIn(os.Getenv(documentVariable), name, value)
}

func describedIn(document, name string, value []byte) error {
	text, err := os.ReadFile(filepath.Join(document, name+".json"))
	if err != nil {
		return err
	}
	var asked jsonschema.Schema
	if err := json.Unmarshal(text, &asked); err != nil {
		return err
	}
	schema, err := asked.Resolve(nil)
	if err != nil {
		return err
	}
	var v any
	if err = json.Unmarshal(value, &v); err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		return fmt.Errorf("%s is not what openapi.yaml says: %w\n%s", name, err, value)
	}
	return nil
}

// document is a folder for documentVariable: of each answer the part of the document of the
// local API that describes it. Thousands of commands would take longer to read the whole
// than for the rest of what they do.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "agent", "api", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var whole struct {
		Components struct{ Schemas map[string]any }
	}
	if err := yaml.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	schemas := whole.Components.Schemas
	closeObjects(schemas, false)
	dir := t.TempDir()
	for _, name := range served {
		defs := map[string]any{}
		addReferred(defs, schemas, name)
		text, err := json.Marshal(map[string]any{"$ref": reference + name, "unevaluatedProperties": false, "$defs": defs})
		if err == nil {
			text = bytes.ReplaceAll(text, []byte(`"`+reference), []byte(`"#/$defs/`))
			err = os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDescribed(t *testing.T) {
	t.Setenv(documentVariable, document(t))
	for text, fits := range map[string]bool{
		`{"generation":1,"moves":[]}`: true, `{"generation":1,"moves":[],"nothing-runs":true}`: true,
		`{"moves":[]}`: false, `{"generation":1,"moves":[{}]}`: false, `{"generation":"one","moves":[]}`: false, `{"generation":1,"moves":[],"colour":"red"}`: false,
	} {
		if err := described("Synced", []byte(text)); (err == nil) != fits {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// reference is what a reference to a schema of the document begins with.
const reference = "#/components/schemas/"

// addReferred adds a schema, and those that it refers to.
func addReferred(to, schemas map[string]any, name string) {
	if to[name] != nil {
		return
	}
	to[name] = schemas[name]
	var walk func(at any)
	walk = func(at any) {
		switch at := at.(type) {
		case []any:
			for _, v := range at {
				walk(v)
			}
		case map[string]any:
			for _, v := range at {
				walk(v)
			}
			if ref, is := at["$ref"].(string); is {
				addReferred(to, schemas, strings.TrimPrefix(ref, reference))
			}
		}
	}
	walk(schemas[name])
}

// closeObjects lets no object have properties beside those that the document names. What
// allOf puts together is closed where it is put together.
func closeObjects(at any, inAllOf bool) {
	switch at := at.(type) {
	case []any:
		for _, v := range at {
			closeObjects(v, inAllOf)
		}
	case map[string]any:
		for name, v := range at {
			closeObjects(v, name == "allOf")
		}
		_, ref := at["$ref"].(string)
		_, properties := at["properties"].(map[string]any)
		if at["x-go-type"] == nil && !inAllOf && (ref || properties) {
			at["unevaluatedProperties"] = false
		}
	}
}

// documentVariable names the folder of document to the commands that a test runs.
const documentVariable = "SLUICE_TEST_API"

func (w wire) Status(ctx context.Context, contents bool) (*apply.Status, error) {
	v, err := w.Host.Status(ctx, contents)
	return wired(w, v, err)
}

func (w wire) Metrics(ctx context.Context) ([]exposition.Family, error) {
	v, err := w.Host.Metrics(ctx)
	return wired(w, v, err)
}

func (w wire) Gauges() (*engine.Gauged, error) {
	v, err := w.Host.Gauges()
	return wired(w, v, err)
}

func (w wire) Verify(ctx context.Context, against *engine.Subject, own bool) (*engine.Verified, error) {
	v, err := w.Host.Verify(ctx, against, own)
	return wired(w, v, err)
}

func (w wire) History() (*apply.History, error) {
	v, err := w.Host.History()
	return wired(w, v, err)
}

func (w wire) Text(generation int) (*apply.Text, error) {
	v, err := w.Host.Text(generation)
	return wired(w, v, err)
}

func (w wire) Bans(ctx context.Context) ([]apply.BanEntry, error) {
	v, err := w.Host.Bans(ctx)
	return wired(w, v, err)
}

func (w wire) PastBans() ([]apply.PastBan, error) {
	v, err := w.Host.PastBans()
	return wired(w, v, err)
}

func (w wire) Ban(ctx context.Context, in apply.Banning) (*apply.Banned, error) {
	v, err := w.Host.Ban(ctx, in)
	return wired(w, v, err)
}

func (w wire) Allows(ctx context.Context) ([]engine.AllowEntry, error) {
	v, err := w.Host.Allows(ctx)
	return wired(w, v, err)
}

func (w wire) Allow(ctx context.Context, in engine.Allowing) (*engine.Allowed, error) {
	v, err := worded(w).Allow(ctx, in)
	return wired(w, v, err)
}

func (w wire) Disallow(ctx context.Context, in engine.Allowing) (*engine.Allowed, error) {
	v, err := w.Host.Disallow(ctx, in)
	return wired(w, v, err)
}

func (w wire) LivingSets(ctx context.Context) ([]engine.LivingSet, error) {
	v, err := w.Host.LivingSets(ctx)
	return wired(w, v, err)
}

func (w wire) AddToSet(ctx context.Context, in engine.SetEdit) (*engine.SetEdited, error) {
	v, err := w.Host.AddToSet(ctx, in)
	return wired(w, v, err)
}

func (w wire) RemoveFromSet(ctx context.Context, in engine.SetEdit) (*engine.SetEdited, error) {
	v, err := w.Host.RemoveFromSet(ctx, in)
	return wired(w, v, err)
}

func (w wire) Unban(ctx context.Context, what []bans.Named) (*apply.Banned, error) {
	v, err := w.Host.Unban(ctx, what)
	return wired(w, v, err)
}

func (w wire) Plan(ctx context.Context, r engine.Request) (*engine.Plan, error) {
	v, err := w.Host.Plan(ctx, r)
	return wired(w, v, err)
}

func (w wire) Apply(ctx context.Context, r engine.Request, o apply.Options) (*apply.Outcome, error) {
	v, err := w.Host.Apply(ctx, r, o)
	return wired(w, v, err)
}

func (w wire) Rollback(ctx context.Context, generation int, o apply.Options) (*apply.Outcome, error) {
	v, err := w.Host.Rollback(ctx, generation, o)
	return wired(w, v, err)
}

func (w wire) Remove(ctx context.Context) (*apply.Outcome, error) {
	v, err := w.Host.Remove(ctx)
	return wired(w, v, err)
}

func (w wire) Restore(ctx context.Context, r apply.Restoring) (*apply.Outcome, error) {
	v, err := w.Host.Restore(ctx, r)
	return wired(w, v, err)
}

func (w wire) Sync(ctx context.Context) (*apply.Synced, error) {
	v, err := w.Host.Sync(ctx)
	return wired(w, v, err)
}

func (w wire) Refresh(ctx context.Context, in engine.Refreshing) (*engine.Refreshed, error) {
	v, err := w.Host.Refresh(ctx, in)
	return wired(w, v, err)
}

func (w wire) UpdateCountries(ctx context.Context, in engine.UpdatingCountries) (*geo.UpdateResult, error) {
	v, err := w.Host.UpdateCountries(ctx, in)
	return wired(w, v, err)
}

func (w wire) UndoCountries(ctx context.Context) (*geo.UpdateResult, error) {
	v, err := w.Host.UndoCountries(ctx)
	return wired(w, v, err)
}

func (w wire) Confirm(ctx context.Context) (int, error) {
	v, err := w.Host.Confirm(ctx)
	return wired(w, v, err)
}

func (w wire) Explain(ctx context.Context, q engine.Explaining) (*engine.Explained, error) {
	v, err := worded(w).Explain(ctx, q)
	return wired(w, v, err)
}

func (w wire) Query(ctx context.Context, q engine.Querying) (*engine.Queried, error) {
	v, err := worded(w).Query(ctx, q)
	return wired(w, v, err)
}

func (w wire) Entries(ctx context.Context, q engine.EntryQuestion) (*engine.EntryAnswer, error) {
	v, err := w.Host.Entries(ctx, q)
	return wired(w, v, err)
}

func (w wire) DeleteEntries(ctx context.Context, c engine.EntryChoice) (*engine.DeletedEntries, error) {
	v, err := w.Host.DeleteEntries(ctx, c)
	return wired(w, v, err)
}

func (w wire) PlanTable(ctx context.Context, wish engine.TableWish) (*engine.TablePlan, error) {
	v, err := w.Host.PlanTable(ctx, wish)
	return wired(w, v, err)
}

func (w wire) Tune(ctx context.Context, in apply.Tuning) (*apply.Tuned, error) {
	v, err := w.Host.Tune(ctx, in)
	return wired(w, v, err)
}

func (w wire) Untune(ctx context.Context, u apply.Untuning) (*apply.Tuned, error) {
	v, err := w.Host.Untune(ctx, u)
	return wired(w, v, err)
}

func (w wire) WatchEntries(ctx context.Context, q engine.EntryWatch, seen func(engine.WatchedEntry)) (*engine.WatchedEntries, error) {
	var bad error
	v, err := w.Host.WatchEntries(ctx, q, func(e engine.WatchedEntry) {
		sent, err := survives(e)
		bad = errors.Join(bad, err)
		seen(sent)
	})
	return wired(w, v, errors.Join(err, bad))
}

func (w wire) Top(ctx context.Context, q engine.TopQuestion, seen func(*engine.Top)) (*engine.TopAnswer, error) {
	var bad error
	v, err := w.Host.Top(ctx, q, func(t *engine.Top) {
		sent, err := survives(t)
		bad = errors.Join(bad, err)
		seen(sent)
	})
	return wired(w, v, errors.Join(err, bad))
}

func (w wire) Drops(ctx context.Context, c engine.DropChoice, seen func(engine.Dropped), counted func(engine.DropCounts)) (*engine.DropCounts, error) {
	var bad error
	v, err := w.Host.Drops(ctx, c, func(d engine.Dropped) {
		sent, err := survives(d)
		bad = errors.Join(bad, err)
		seen(sent)
	}, func(c engine.DropCounts) {
		sent, err := survives(c)
		bad = errors.Join(bad, err)
		counted(sent)
	})
	return wired(w, v, errors.Join(err, bad))
}

func (w wire) Log(ctx context.Context, q engine.LogQuestion, seen func(engine.Logged)) (*engine.LogAnswer, error) {
	var bad error
	v, err := w.Host.Log(ctx, q, func(l engine.Logged) {
		sent, err := survives(l)
		bad = errors.Join(bad, err)
		seen(sent)
	})
	return wired(w, v, errors.Join(err, bad))
}
