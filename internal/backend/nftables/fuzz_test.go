package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/base/testseed"
	"sluice/internal/program"
	"sluice/internal/system/kernel/nft"
)

// FuzzRead: whatever nft or somebody else prints, the reader gives a state or
// an error, and what it read can be printed, compared and stepped from.
func FuzzRead(f *testing.F) {
	for _, seed := range listings(f) {
		f.Add(seed)
	}
	for _, seed := range []string{
		``, `{}`, `[]`, `{"nftables":null}`,
		`{"nftables":[{"table":{"family":"inet","name":"sluice"}},{"set":{"family":"inet","table":"sluice","name":"a4_0123456789abcdef","type":"ipv4_addr"}}]}`,
		`{"nftables":[{"table":{"family":"inet","name":"sluice"}},{"rule":{"family":"inet","table":"sluice","chain":"c","expr":[{"match":{"op":"==","left":{"&":[{"meta":{"key":"mark"}},{"|":[1,"x"]}]},"right":{"set":[]}}}]}}]}`,
		`{"nftables":[{"table":{"family":"inet","name":"sluice"}},{"rule":{"family":"inet","table":"sluice","chain":"c","expr":[{"mangle":{"key":{"payload":{"protocol":"ip6","field":"daddr"}},"value":{"|":[{"&":[{"payload":{"protocol":"ip6","field":"daddr"}},"-1"]},99999999999999999999999999999999999999999999999]}}}]}}]}`,
		`{"nftables":[{"table":{"family":"inet","name":"sluice"}},{"rule":{"family":"inet","table":"sluice","chain":"c","expr":[{"dnat":{"addr":{"map":{"key":[],"data":{"set":[[1]]}}}}},{"set":{"op":"add","set":"@x","elem":{"elem":{"val":null}}}},{"vmap":{"key":null,"data":{"set":[[1,{}]]}}}]}}]}`,
	} {
		f.Add([]byte(seed))
	}
	one, err := New().Lower(constructs[0].program(), everything)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse(text, "sluice")
		if err != nil {
			return
		}
		_ = s.Tree.document(nil)
		if _, err := New().Compare(one, s); err != nil {
			t.Fatal(err)
		}
		if _, err := New().Steps(one, s); err != nil {
			t.Fatal(err)
		}
		if _, err := New().Steps(nil, s); err != nil {
			t.Fatal(err)
		}
		r := lift(&s.Tree)
		if err := r.Program.Check(); err != nil && len(r.Unlifted) == 0 {
			t.Fatal(err)
		}
	})
}

// listings are what nft printed of every construct, kept as files so that the
// fuzzer runs without rights.
func listings(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/listing/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no listings: %v", err)
	}
	var out [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, text)
	}
	return out
}

// FuzzNames: names, comments and prefixes of any bytes stay where they are
// put. The text must hold exactly the statements that were meant.
func FuzzNames(f *testing.F) {
	for _, seed := range nastyNames {
		f.Add(seed, seed, seed)
	}
	f.Fuzz(func(t *testing.T, id, text, log string) {
		p := nastyProgram(id, text, log)
		a, err := New().Lower(p, everything)
		if err != nil {
			return // refused is fine
		}
		if !plainLines(a.Text()) {
			t.Errorf("the text has lines that no program asked for:\n%s", a.Text())
		}
		if c := comment(text); len(c) > maxComment || !utf8.ValidString(c) || strings.ContainsAny(c, "\"\\\n\r\x00") {
			t.Errorf("comment %q becomes %q", text, c)
		}
		if id != "" && len(id) < 50 {
			if n := name(id); programName(n) != id || !inAlphabet(n) {
				t.Errorf("name %q becomes %q, and that %q", id, n, programName(n))
			}
		}
	})
}

func inAlphabet(name string) bool {
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/") == ""
}

// plainLines says whether every line that is not of a comment has quotes in
// pairs, and no more braces than lines of ours have.
func plainLines(text string) bool {
	depth := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		outside := strings.Split(line, `"`)
		if len(outside)%2 == 0 {
			return false
		}
		for i := 0; i < len(outside); i += 2 {
			depth += strings.Count(outside[i], "{") - strings.Count(outside[i], "}")
		}
	}
	return depth == 0
}

var nastyNames = []string{
	"a", "accept", `a"; drop; "`, "a } } table inet evil { chain x {", "new\nline", "tab\tand\x00zero", "ünïcödé", "日本", "$x", "\\", "a\\\"b", "@set", "#", "-", "0", "4",
	"\xff\xfe", strings.Repeat("x", 300), strings.Repeat("é", 100), " ", "", "add rule inet sluice input drop", "ip6", "limits", "\u2028", "%s%n", "x*", "*",
}

// nastyProgram puts the words everywhere where a program's words go.
func nastyProgram(id, text, log string) *program.Program {
	c := construct{actions: actions{
		program.Limit{Name: id, Rate: perSecond(1, 1), Per: program.PerSource, Table: id, FullCounter: id},
		program.Count{Counter: id},
		program.Log{Prefix: log, Rate: perSecond(1, 1)},
		program.Accept,
	}, match: conditions{setOn(program.Source, "named "+id), namesOf(program.InInterface, interfaceLike(id))}}
	p := c.program()
	p.Chains[0].Comment, p.Chains[0].Rules[0].Comment = text, text
	p.Chains[0].Rules[0].ID = id
	p.Chains[0].Rules[0].Origin = program.Origin{File: text, Line: 3, Text: text}
	p.Counters = append(p.Counters, program.Counter{Name: id, Comment: text, Origin: program.Origin{File: text, Line: 1, Text: text}})
	p.Sets = append(p.Sets,
		program.Set{ID: id, Key: []program.Field{program.Source}, Life: program.Dynamic, Size: 16, Timeout: 1000},
		program.Set{ID: "named " + id, Key: []program.Field{program.Source}, Life: program.Living, Addresses: addrset.MustParse("192.0.2.1"), Origin: program.Origin{File: text, Line: 2, Text: text}},
	)
	p.Notes = []program.Note{{Text: text}}
	p.Sets = uniqueSets(p.Sets)
	return p
}

func uniqueSets(sets []program.Set) []program.Set {
	seen := map[string]bool{}
	var out []program.Set
	for _, s := range sets {
		if !seen[s.ID] {
			seen[s.ID] = true
			out = append(out, s)
		}
	}
	return out
}

// interfaceLike is the word where it can be an interface's name at all.
func interfaceLike(word string) string {
	if validInterface(word) {
		return word
	}
	return "eth0"
}

// TestNastyNames loads programs full of such words, and random ones, on the
// kernel, and reads them back.
func TestNastyNames(t *testing.T) {
	host := kernelHost(t)
	random := testseed.Rand(t)
	words := append([]string{}, nastyNames...)
	const special = "\"\\{};$#@-_./ aZ0*%\n\t'`|&!,:"
	for range 15 {
		var b strings.Builder
		for range 1 + random.IntN(20) {
			if random.IntN(3) == 0 {
				b.WriteByte(byte(random.UintN(256)))
			} else {
				b.WriteByte(special[random.IntN(len(special))])
			}
		}
		words = append(words, b.String())
	}
	for _, w := range words {
		a, err := New().Lower(nastyProgram(w, w, w), everything)
		if err != nil {
			t.Logf("%q is refused: %v", w, err)
			continue
		}
		own := a.(*artifact)
		host.load(t, New(), own)
		host.holds(t, fmt.Sprintf("%q", w), own)
		err = host.Do(func() error {
			return nft.Run(context.Background(), "delete table inet sluice\n"+own.Text())
		})
		if err != nil {
			t.Errorf("%q: the whole text does not load: %v", w, err)
		}
		host.holds(t, fmt.Sprintf("%q, loaded as a whole", w), own)
		host.load(t, New(), nil)
	}
}

// TestKeywords: every word of nft's that a name could be is known to be one.
func TestKeywords(t *testing.T) {
	host := kernelHost(t)
	host.Nft("add table inet t")
	check := func(text string) error {
		return host.Do(func() error { return nft.Check(context.Background(), text) })
	}
	var texts []string
	for word := range keywords {
		if n := name(word); n == word {
			t.Errorf("%s stays %s", word, n)
		}
		texts = append(texts, "add chain inet t "+name(word)+"\n", "add counter inet t "+name(word)+" { }\n", "add set inet t "+stem(word)+"_v4 { type ipv4_addr; }\n")
	}
	if check(strings.Join(texts, "")) == nil {
		return
	}
	for _, text := range texts {
		if err := check(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if !t.Failed() {
		t.Error("together they are refused, and each alone is not")
	}
}

// FuzzValues: values of any kind come to one form, and stay in it.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{"1 2 3", "5-7 6", "192.0.2.0/24 192.0.2.7", "eth0 lo", "10-5", "::1-::2", "4294967296 1", "1-", "-", "0x50 [invalid type]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := normalValues(strings.Fields(text))
		twice := normalValues(once)
		if strings.Join(once, " ") != strings.Join(twice, " ") {
			t.Errorf("%q becomes %q and then %q", text, once, twice)
		}
		for _, v := range once {
			_, _ = netip.ParseAddr(textValue(v))
		}
	})
}

// TestNamesOfDevices: a set holds every name that the kernel gives an interface, and its
// text loads and means the same where nft has a way to write it.
func TestNamesOfDevices(t *testing.T) {
	host := kernelHost(t)
	names := []string{`a"}b`, "a,b*", "*", "@x", `a\`, `a\*`, "a\x01b", "\xff\xfe", "é", "#", "$x", "15-letters-long", "..."}
	for _, name := range names {
		if !validDevice(name) {
			t.Errorf("%q is refused", name)
			continue
		}
		p := construct{match: conditions{namesOf(program.InInterface, program.DefaultRoute)}}.program()
		p.Sets = []program.Set{{ID: program.DefaultRouteSet, Key: []program.Field{program.InInterface}, Life: program.Followed, Follow: &program.Following{}}}
		p.Sets[0].Hold(program.Held{Names: []string{name}})
		a, err := New().Lower(p, everything)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		own := a.(*artifact)
		host.load(t, New(), own)
		host.holds(t, fmt.Sprintf("%q", name), own)
		if textless := len(own.Textless()) > 0; textless != (name == `a"}b` || name == `a\*`) {
			t.Errorf("%q: text cannot have it: %v", name, textless)
		} else if !textless {
			if err := host.Do(func() error { return nft.Run(context.Background(), "delete table inet sluice\n"+own.Text()) }); err != nil {
				t.Errorf("%q: the text does not load: %v", name, err)
			} else if d := host.compare(t, own, true); len(d) > 0 {
				t.Errorf("%q, loaded as text: %s", name, differences(d))
			}
		}
		host.load(t, New(), nil)
	}
	for _, name := range []string{"", ".", "..", "a/b", "a:b", "a b", "a\nb", "sixteen-letters-"} {
		if validDevice(name) {
			t.Errorf("%q is taken", name)
		}
	}
}
