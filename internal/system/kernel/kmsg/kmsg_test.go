package kmsg

import (
	"os"
	"strings"
	"testing"
	"time"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte("4,339,5140900,-;nf_conntrack: table full\n SUBSYSTEM=x\n"))
	f.Add([]byte("4,339,-1,-;x"))
	f.Add([]byte("6,1,9223372036854775807,-,caller=T1;y"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, ok := parse(data, time.Hour)
		if r.Age < 0 || strings.Contains(r.Text, "\n") || !ok && r != (Record{}) {
			t.Errorf("%q: %+v", data, r)
		}
	})
}

// TestRead: what is written to the log is read from it. Without the end of a line the kernel
// would wait for more of it (prb_final_commit of kernel/printk/printk_ringbuffer.c).
func TestRead(t *testing.T) {
	text := "sluice test of the kernel's log " + t.Name()
	if err := os.WriteFile("/dev/kmsg", []byte("<7>"+text+"\n"), 0); err != nil {
		t.Skipf("this machine lacks a kernel log that can be written: %v", err)
	}
	found := false
	if err := Read(func(r Record) { found = found || strings.Contains(r.Text, text) && r.Age < time.Hour }); err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Error("the line is not there")
	}
}
