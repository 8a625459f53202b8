package schedule

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func none(time.Duration) time.Duration { return 0 }

func half(most time.Duration) time.Duration { return most / 2 }

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func TestMeet(t *testing.T) {
	const hour, day = time.Hour, 24 * time.Hour
	failed := Task{Done: now.Add(-day), Every: hour, Failed: 3, Error: "no route", Next: now.Add(4 * time.Minute)}
	for _, c := range []struct {
		name  string
		was   Task
		done  time.Time
		every time.Duration
		want  Task
	}{
		{"first", Task{}, now.Add(-10 * time.Minute), hour, Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: now.Add(53 * time.Minute)}},
		{"first, and due for long", Task{}, now.Add(-day), hour, Task{Done: now.Add(-day), Every: hour, Next: now.Add(time.Minute)}},
		{"never done", Task{}, time.Time{}, hour, Task{Every: hour, Next: now.Add(time.Minute)}},
		{"never done, once", Task{}, time.Time{}, 0, Task{Next: now}},
		{"planned", Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: now.Add(55 * time.Minute)}, now.Add(-10 * time.Minute), hour, Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: now.Add(55 * time.Minute)}},
		{"due", Task{Done: now.Add(-day), Every: hour, Next: now.Add(-time.Minute)}, now.Add(-day), hour, Task{Done: now.Add(-day), Every: hour, Next: now.Add(-time.Minute)}},
		{"done by somebody else", failed, now.Add(-20 * time.Minute), hour, Task{Done: now.Add(-20 * time.Minute), Every: hour, Next: now.Add(43 * time.Minute)}},
		{"another policy", Task{Done: now.Add(-10 * time.Minute), Every: day, Next: now.Add(day)}, now.Add(-10 * time.Minute), hour, Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: now.Add(53 * time.Minute)}},
		{"tried again later", failed, now.Add(-day), hour, failed},
		// The clock was ahead by years, when it was done or when it was planned.
		{"done in the future", Task{}, now.Add(1000 * day), hour, Task{Done: now.Add(1000 * day), Every: hour, Next: now.Add(time.Minute)}},
		{"planned for the future", Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: now.Add(1000 * day)}, now.Add(-10 * time.Minute), hour, Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: now.Add(53 * time.Minute)}},
		{"failed in the future", Task{Done: now.Add(-day), Every: hour, Failed: 1, Error: "no route", Next: now.Add(1000 * day)}, now.Add(-day), hour, Task{Done: now.Add(-day), Every: hour, Next: now.Add(time.Minute)}},
		// The clock began in 1970, and is right by now.
		{"planned in 1970", Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: time.Unix(60, 0)}, now.Add(-10 * time.Minute), hour, Task{Done: now.Add(-10 * time.Minute), Every: hour, Next: time.Unix(60, 0)}},
	} {
		got := c.was.Meet(c.done, c.every, now, half)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if again := got.Meet(c.done, c.every, now, half); again != got {
			t.Errorf("%s: it does not stay: %+v", c.name, again)
		}
	}
}

// Pauses after failures grow, up to how often the task is done, or a day.
func TestFail(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		want  []int // minutes
	}{
		{5 * time.Minute, []int{1, 2, 4, 5, 5}},
		{0, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440, 1440}},
		{10 * time.Second, []int{0}},
	} {
		task := Task{Every: c.every}
		for i, want := range c.want {
			task = task.Fail("no route", now, none)
			if got := int(task.Next.Sub(now).Minutes()); got != want || task.Failed != i+1 || task.Error != "no route" {
				t.Errorf("every %v, time %d: %+v", c.every, i+1, task)
			}
			if kept := task.Meet(task.Done, task.Every, now, none); kept != task {
				t.Errorf("every %v, time %d: it does not stay: %+v", c.every, i+1, kept)
			}
		}
	}
	for range 200 {
		if task := (Task{Failed: 1 << 40}).Fail("", now, none); task.Next.Sub(now) != mostPause {
			t.Fatal(task)
		}
	}
}

func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if got := Read(dir); len(got) != 0 {
		t.Error(got)
	}
	want := Plan{List("scanners"): Task{Done: now, Every: time.Hour, Next: now.Add(time.Hour)}, Countries: Task{Next: now, Failed: 2, Error: "no route"}}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, Read(dir)); d != "" {
		t.Error(d)
	}
	for _, text := range []string{"", "null", "[]", `{"list x": 7}`} {
		if err := os.WriteFile(filepath.Join(dir, planFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Read(dir); got == nil || len(got) != 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}
