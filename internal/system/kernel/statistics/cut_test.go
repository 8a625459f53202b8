package statistics

import (
	"os"
	"path/filepath"
	"testing"
)

// files are beginnings of what Linux 6.18 has there.
var files = map[string]string{
	"stat": "cpu  10132153 290696 3084719 46828483 16683 0 25195 175628 0 0\n" +
		"cpu0 1393280 32966 572056 13343292 6130 0 17875 23933 0 0\n" +
		"cpu1 1335498 28612 532164 13395340 5241 0 4120 22931 0 0\n" +
		"intr 199292 10 0 0 1\nctxt 1990473\nbtime 1062191376\nprocesses 2915\nprocs_running 1\nprocs_blocked 0\n" +
		"softirq 183433 0 21755 12 39 1137 231 21459 2263 0 51240\n",
	"net/softnet_stat": "00008e78 00000001 00000023 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n" +
		"00015c93 00020e76 f0000769 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000004 00000000 00000001\n",
	"slabinfo": "slabinfo - version: 2.1\n" +
		"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n" +
		"nf_conntrack        2352   2352    320   51    4 : tunables    0    0    0 : slabdata     46     46      0\n" +
		"kmalloc-64          8192   8192     64   64    1 : tunables    0    0    0 : slabdata    128    128      0\n",
}

// whole is what the files say.
func whole(t *testing.T, root string) {
	t.Helper()
	if all, err := processors(root); err != nil || len(all) != 2 || all[1].Softirq != 41.2 {
		t.Errorf("%+v %v", all, err)
	}
	if all, err := backlogs(root); err != nil || len(all) != 2 || all[1] != (Backlog{1, 0x15c93, 0x20e76, 0xf0000769}) {
		t.Errorf("%+v %v", all, err)
	}
	if n, err := objectBytes(root, "nf_conntrack"); err != nil || n != 320 {
		t.Errorf("%d %v", n, err)
	}
}

// TestCutOff: files that end early, or are none of that kind, are read as far as they go, or
// refused, wherever the end is.
func TestCutOff(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	whole(t, root)
	read := func() {
		_, _ = processors(root)
		_, _ = backlogs(root)
		_, _ = objectBytes(root, "nf_conntrack")
	}
	for name, text := range files {
		for i := range text {
			write(name, text[:i])
			read()
			for _, other := range []string{" ", "\n", "-", ":", "\x00"} {
				if i%5 == 0 {
					write(name, text[:i]+other+text[i+1:])
					read()
				}
			}
		}
		write(name, text)
	}
	whole(t, root)
}

func FuzzColumn(f *testing.F) {
	f.Add("entries  allocs table_fulls\n00000001 00000002 0000001f\n00000001 00000002 00000001\n")
	f.Add("table_fulls\n\n")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = column(text, "table_fulls") })
}
