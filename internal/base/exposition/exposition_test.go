package exposition

import (
	"strings"
	"testing"
)

func family(name string, samples int) Family {
	f := Family{Name: name, Help: "A " + name + ".", Type: Gauge}
	for i := range samples {
		f.Add(float64(i), map[string]string{"n": strings.Repeat("x", i), "none": ""})
	}
	return f
}

func TestWrite(t *testing.T) {
	f := Family{Name: "a_total", Help: "With \\ and\nan end.", Type: Counter}
	f.Add(18446744073709551615, nil)
	f.Add(0.25, map[string]string{"b": "say \"x\"\n\\", "a": "\xff\x1b", "none": ""})
	var b strings.Builder
	if err := Write(&b, []Family{f, {Name: "empty", Type: Gauge}}); err != nil {
		t.Fatal(err)
	}
	const want = "# HELP a_total With \\\\ and\\nan end.\n# TYPE a_total counter\n" +
		"a_total 18446744073709552000\n" +
		"a_total{a=\"\uFFFD\x1b\",b=\"say \\\"x\\\"\\n\\\\\"} 0.25\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestHistogram(t *testing.T) {
	f := Family{Name: "a_seconds", Help: "How long.", Type: Histogram}
	f.AddHistogram([]float64{0.5, 10}, []int64{2, 0, 1}, 31.5, map[string]string{"stage": "b"})
	var b strings.Builder
	if err := Write(&b, []Family{f}); err != nil {
		t.Fatal(err)
	}
	const want = "# HELP a_seconds How long.\n# TYPE a_seconds histogram\n" +
		"a_seconds_bucket{le=\"0.5\",stage=\"b\"} 2\na_seconds_bucket{le=\"10\",stage=\"b\"} 2\na_seconds_bucket{le=\"+Inf\",stage=\"b\"} 3\n" +
		"a_seconds_sum{stage=\"b\"} 31.5\na_seconds_count{stage=\"b\"} 3\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestBound(t *testing.T) {
	for _, c := range []struct {
		sizes   []int
		most    int
		left    []int
		leftOut int
	}{
		{[]int{1, 5, 5}, 11, []int{1, 5, 5}, 0},
		{[]int{1, 5, 5}, 9, []int{1, 4, 4}, 2},
		{[]int{9, 1, 9, 2}, 10, []int{3, 1, 3, 2}, 12},
		{[]int{3, 3}, 1, []int{0, 0}, 6},
	} {
		var families []Family
		for _, n := range c.sizes {
			families = append(families, family("f", n))
		}
		leftOut := Bound(families, c.most)
		for i, f := range families {
			if len(f.Samples) != c.left[i] {
				t.Errorf("%v, at most %d: family %d keeps %d, not %d", c.sizes, c.most, i, len(f.Samples), c.left[i])
			}
		}
		if leftOut != c.leftOut {
			t.Errorf("%v, at most %d: %d are left out, not %d", c.sizes, c.most, leftOut, c.leftOut)
		}
	}
}

func TestJoin(t *testing.T) {
	out := Join([]Family{family("a", 2), family("b", 1)}, []Family{family("b", 3)})
	if len(out) != 2 || out[0].Name != "a" || len(out[1].Samples) != 4 {
		t.Errorf("%+v", out)
	}
}
