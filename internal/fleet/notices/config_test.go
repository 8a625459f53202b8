package notices

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"sluice/internal/language/source"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := Parse("n.yaml", []byte(example), nil)
	ok(t, err)
	if len(c.Receivers) != 3 || c.Remind != 24*time.Hour {
		t.Fatalf("%+v", c)
	}
	here, ops, pager := c.Receivers[0], c.Receivers[1], c.Receivers[2]
	if here.Name != "here" || here.How() != "journal" || !here.Wants(List) {
		t.Errorf("%+v", here)
	}
	if pager.How() != "webhook at alerts.example.net" || pager.Wants(List) || !pager.Wants(Halted) || pager.hook.Authorization != "Bearer correct-horse" {
		t.Errorf("%+v", pager)
	}
	if m := ops.mail; m.host != "mail.example.net" || m.port != 587 || m.tls != "starttls" || m.from != `"Sluice" <sluice@example.net>` || ops.How() != "mail to <ops@example.net> and <night@example.net> by mail.example.net" {
		t.Errorf("%+v, %s", m, ops.How())
	}
	for text, want := range map[string]time.Duration{"12h": 12 * time.Hour, "3d": 72 * time.Hour, "never": 0} {
		if c, err := Parse("n.yaml", []byte("version: 1\nremind: "+text+"\nreceivers: {log: {journal: true}}\n"), nil); err != nil || c.Remind != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	c, err = Load(t.TempDir(), nil)
	if err != nil || len(c.Receivers) != 1 || c.Receivers[0].How() != "journal" || c.Remind != 24*time.Hour {
		t.Errorf("without a file: %+v %v", c, err)
	}
}

// TestPartlyRight: what is right of a file is used, and what is said of the rest has no line of it.
func TestPartlyRight(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"version: 1\nremind: soon\nreceivers:\n  b: {journal: true}\n  a: {webhook: {url: 'nowhere', authorization: secret}}\n  c: {jornal: true}\n": "b",
		"version: 1\nreceivers: {a: {webhook: {url: 'nowhere', authorization: secret}}}\n":                                                           "journal",
		"version: 1\nreceivers: {a: {webhook: {url: 'https://example.net', authorization: secret}}\n":                                                "journal",
		"version: 1\nreceivers: {a: {webhook: 'https://example.net/secret'}}\n":                                                                      "journal",
		"version: 1\nreceivers: {a: {mail: {server: 'smtp://ops:\"secret@example.net', from: a@example.net, to: [b@example.net]}}}\n":                "journal",
		"version: 1\nreceivers:\n  a:\n    mail:\n      password secret: x\n":                                                                        "journal",
	} {
		dir := t.TempDir()
		ok(t, os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600))
		c, err := Load(dir, nil)
		if err == nil || len(c.Receivers) != 1 || c.Receivers[0].Name != want || c.Remind != usualRemind || c.Changed(dir) {
			t.Errorf("%s: %v %+v", text, err, c)
		}
		if !strings.Contains(c.Wrong, File+":") || strings.Contains(c.Wrong, "secret") {
			t.Error(c.Wrong)
		}
	}
}

// ‸ is before the character that the error points at.
func TestErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "empty.pem"), []byte("none\n"), 0o600))
	const head, mail = "version: 1\nreceivers: {a: ", "server: mail.example.net, from: a@example.net, to: b@example.net"
	for _, c := range []struct{ text, message, hint string }{
		{"‸", "file is empty", "version: 1"},
		{"‸[]\n", "the file of notices must be a mapping, not a list", ""},
		{"‸receivers: {a: {journal: true}}\n", "version is missing", ""},
		{"‸version: 1\n", "receivers is missing", ""},
		{"version: ‸2\nreceivers: {a: {journal: true}}\n", "this sluice does not know version", "version: 1"},
		{"version: 1\nremind: ‸1w\nreceivers: {a: {journal: true}}\n", `remind is "1w"`, "12h"},
		{"version: 1\n‸recipients: a\nreceivers: {a: {journal: true}}\n", `unknown key "recipients" in the file of notices`, "known are"},
		{"version: 1\nreceivers: ‸{}\n", "receivers is empty", "journal alone"},
		{"version: 1\nreceivers: {‸'A b': {journal: true}}\n", `"A b" is not the name of a receiver`, "small letters"},
		{"version: 1\nreceivers: {‸a: {}}\n", "one of mail, webhook and journal, and a has 0", ""},
		{"version: 1\nreceivers: {‸a: {journal: true, webhook: {url: 'https://a.example'}}}\n", "and a has 2", "a name of its own"},
		{head + "‸mail}\n", "a receiver must be a mapping", ""},
		{head + "{journal: ‸yes}}\n", "journal must be true or false", "write true"},
		{head + "{journal: ‸false}}\n", "journal is false", "leave the receiver out"},
		{head + "{journal: true, only: ‸[]}}\n", "only is empty", "leave it out"},
		{head + "{journal: true, only: [halted, ‸halt]}}\n", `"halt" is not a kind of notice`, "known are drift"},
		{head + "{journal: true, only: [halted, ‸halted]}}\n", "halted is listed twice", ""},
		{head + "{webhook: ‸{}}}\n", "url is missing in a webhook", ""},
		{head + "{webhook: {url: ‸ftp://a.example}}}\n", "url is not a URL of http or https", "https://HOST/PATH"},
		{head + "{webhook: {url: 'https://a.example', authorization: ‸\"Bearer x\\r\\nHost: y\"}}}\n", "authorization is not a plain text", ""},
		{head + "{webhook: {url: 'https://a.example', ca: ‸empty.pem}}}\n", "no certificate is in it", "PEM"},
		{head + "{webhook: {url: 'https://a.example', ca: ‸gone.pem}}}\n", "gone.pem", "PEM"},
		{head + "{mail: ‸{server: a.example, from: a@b.example}}}\n", "to is missing in mail", ""},
		{head + "{mail: {server: ‸'http://a.example', from: a@b.example, to: a@b.example}}}\n", `is not a mail server`, ":PORT"},
		{head + "{mail: {server: ‸'a.example:99999', from: a@b.example, to: a@b.example}}}\n", `is not a mail server`, ":PORT"},
		{head + "{mail: {server: a.example, from: ‸ops, to: a@b.example}}}\n", `"ops" is not a mail address`, "NAME@HOST"},
		{head + "{mail: {server: a.example, from: a@b.example, to: [a@b.example, ‸\"a@b.example\\r\\nBcc: c@d.example\"]}}}\n", "a mail address is not a plain text", ""},
		{head + "{mail: {server: a.example, from: a@b.example, to: ‸[]}}}\n", "to has 0 addresses", ""},
		{head + "{mail: {" + mail + ", tls: ‸ssl}}}\n", `tls is "ssl"`, "starttls, implicit or none"},
		{head + "{mail: {" + mail + ", user: ‸a}}}\n", "password is missing", ""},
		{head + "{mail: {" + mail + ", password: ‸a}}}\n", "user is missing", ""},
		{head + "{mail: {" + mail + ", tls: none, user: ‸a, password: b}}}\n", "not sent in the clear", "tls: starttls"},
	} {
		text, _, _ := strings.Cut(c.text, "‸")
		line, column := 1+strings.Count(text, "\n"), 1+utf8.RuneCountInString(text[strings.LastIndex(text, "\n")+1:])
		name := filepath.Join(dir, "n.yaml")
		_, err := Parse(name, []byte(strings.Replace(c.text, "‸", "", 1)), nil)
		var errs source.Errors
		if !errors.As(err, &errs) || len(errs) != 1 {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		e := errs[0]
		if !strings.Contains(e.Message, c.message) || !strings.Contains(e.Hint, c.hint) || e.Pos != (source.Pos{File: name, Line: line, Column: column}) {
			t.Errorf("%q: %v", c.text, e)
		}
	}
}

// TestSchema: each example of the table fits its shape, and is read where it is a file.
func TestSchema(t *testing.T) {
	t.Parallel()
	var whole jsonschema.Schema
	ok(t, json.Unmarshal(Schema(), &whole))
	in := map[string]string{
		"notices": "%", "remind": "{version: 1, remind: %, receivers: {a: {journal: true}}}", "receivers": "{version: 1, receivers: %}",
		"receiver": "{version: 1, receivers: {a: %}}", "mail": "{version: 1, receivers: {a: {mail: %}}}", "webhook": "{version: 1, receivers: {a: {webhook: %}}}",
		"server":    "{version: 1, receivers: {a: {mail: {server: %, from: a@b.example, to: a@b.example}}}}",
		"tls":       "{version: 1, receivers: {a: {mail: {server: b.example, tls: %, from: a@b.example, to: a@b.example}}}}",
		"addresses": "{version: 1, receivers: {a: {mail: {server: b.example, from: a@b.example, to: %}}}}",
		"address":   "{version: 1, receivers: {a: {mail: {server: b.example, from: %, to: a@b.example}}}}",
		"url":       "{version: 1, receivers: {a: {webhook: {url: '%'}}}}", "kinds": "{version: 1, receivers: {a: {journal: true, only: %}}}", "kind": "{version: 1, receivers: {a: {journal: true, only: [%]}}}",
	}
	for _, s := range grammar.Shapes {
		schema, err := (&jsonschema.Schema{Ref: "#/$defs/" + s.Name, Defs: whole.Defs}).Resolve(nil)
		ok(t, err)
		for _, e := range s.Examples {
			var v any
			ok(t, yaml.Load([]byte(e), &v))
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s: %s\n%v", s.Name, e, err)
			}
			if text := in[s.Name]; text != "" {
				if _, err := Parse("n.yaml", []byte(strings.Replace(text, "%", e, 1)), nil); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestReferenceIsWritten(t *testing.T) {
	t.Parallel()
	for file, want := range map[string][]byte{"notices.md": Reference(), "notices.schema.json": Schema()} {
		is, err := os.ReadFile("../../../docs/reference/" + file)
		ok(t, err)
		if !bytes.Equal(is, want) {
			t.Errorf("docs/reference/%s is not what the table says; run make generate", file)
		}
	}
}

// FuzzParse: no panic, and every error at a place of the text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", example, "version: 1\nreceivers: {a: {mail: {server: '[::1]:25', to: [x], from: }}}\n", "version: 1\nreceivers: [a]\n", "a: &a [*a]\n", "version: 1\nreceivers: {a: {webhook: {url: 'https://[::1'}}}\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := Parse("/nonexistent/n.yaml", data, nil)
		var errs source.Errors
		if err != nil && !errors.As(err, &errs) {
			t.Errorf("%v", err)
		}
		for _, e := range errs {
			if lines := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + 1; e.Pos.Line < 1 || e.Pos.Line > lines {
				t.Errorf("%v in %d lines", e, lines)
			}
		}
	})
}
