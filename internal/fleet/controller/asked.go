package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/internal/base/english"
	"sluice/internal/base/selector"
	"sluice/internal/fleet/api"
	"sluice/internal/fleet/store"
	"sluice/internal/fleet/trust"
)

// mostAsked is how many addresses are in the words of a request.
const mostAsked = 3

// asks is what a request is for, in the words of the command that asks for it. Of one whose body
// cannot be read these are fewer.
func asks(is store.Request) string {
	at, err := url.ParseRequestURI(is.Path)
	if err != nil {
		return is.Operation
	}
	var w commandLine
	if is.Operation == store.Enrolling {
		var asking store.Asking
		_ = json.Unmarshal(is.Body, &asking)
		w.add("enrol", at.Query().Get("host"))
		w.flag("--labels", strings.Join(labelWords(asking.Labels), ","))
		return w.String()
	}
	body, _ := suspendable(is.Operation)
	if body != nil {
		_ = json.Unmarshal(is.Body, body)
	}
	w.operation(is, at)
	w.body(body, is.Asked)
	return w.String()
}

// commandLine is made of words as a shell reads them, which are to be read, not run.
type commandLine struct{ words []string }

// bare is a value that needs no quotes: it can be read neither as a flag nor as more than one word.
var bare = regexp.MustCompile(`^[A-Za-z0-9_./:=,+@%][A-Za-z0-9_./:=,+@%-]*$`)

func (w *commandLine) String() string { return strings.Join(w.words, " ") }

// add adds values, which others chose.
func (w *commandLine) add(words ...string) {
	for _, word := range words {
		if word != "" && !bare.MatchString(word) {
			word = strconv.Quote(word)
		}
		if word != "" {
			w.words = append(w.words, word)
		}
	}
}

// flag is one with a value, where that is not "".
func (w *commandLine) flag(name, value string) {
	if value != "" {
		w.set(name, true)
		w.add(value)
	}
}

func (w *commandLine) set(name string, is bool) {
	if is {
		w.words = append(w.words, name)
	}
}

func (w *commandLine) lasts(d time.Duration) {
	if d > 0 {
		w.flag("--for", english.Duration(d.Round(time.Second)))
	}
}

// operation is the command of an operation, and what its path says.
func (w *commandLine) operation(is store.Request, at *url.URL) {
	words := map[string][]string{
		"command": {"rollout", segment(at, 5), segment(at, 4)}, "revoke": {"revoke", segment(at, 4)}, "setLabels": {"publish", "labels", segment(at, 4)},
		"putGuest": {"guest", "put", segment(at, 4)}, "removeGuest": {"guest", "remove", segment(at, 4)},
		"refreshList": {"lists", "refresh", segment(at, 4)}, "undoList": {"lists", "undo", segment(at, 4)},
		"rollOutDraft": {"draft", segment(at, 4)},
		"createToken":  {"token", "create"}, "createAccess": {"access", "create"}, "createLink": {"access", "link"},
	}[is.Operation]
	if words == nil {
		words = []string{is.Operation} // publish, ban, unban, allow, disallow
	}
	w.add(words...)
	w.set("--roll-out", is.Operation == "rollOutDraft")
}

// body is what the body of a request says, which was asked for at a time.
func (w *commandLine) body(body any, asked time.Time) {
	switch is := body.(type) {
	case *api.Publish:
		if is.Bundle > 0 {
			w.add("bundle", strconv.FormatInt(is.Bundle, 10))
		}
		if !is.NotBefore.IsZero() {
			w.flag("--not-before", is.NotBefore.UTC().Format(time.RFC3339))
		}
	case *api.NewHoldings:
		w.holdings(is)
	case *api.Lift:
		w.addresses(len(is.What), func(i int) string { return is.What[i] })
		w.add(is.Service)
		w.flag("--hosts", is.Hosts)
		w.flag("-m", is.Reason)
	case *api.Why:
		w.flag("-m", is.Why)
	case *api.LabelOrder:
		if order, err := trust.ReadLabels(is.Order); err == nil {
			w.words = append(w.words, "("+selector.LabelText(order.Labels)+")")
		}
	case *api.NewGuest:
		w.add(labelWords(is.Labels)...)
		w.flag("--host", is.Host)
		w.flag("--netns", is.Netns)
		w.flag("--interface", is.Interface)
		w.flag("--address", addressWords(is.Addresses))
		w.flag("--public", addressWords(is.Public))
		w.set("--rules …", is.Rules != "")
	case *api.ListRefresh:
		w.set("--force", is.Force)
		w.set("--allow-cut", is.AllowCut)
	case *api.NewToken:
		w.flag("--labels", strings.Join(labelWords(is.Labels), ","))
		if is.Uses > 1 {
			w.flag("--uses", strconv.Itoa(is.Uses))
		}
		w.lasts(is.Expires.Sub(asked))
		w.set("--approve", is.Approve)
	case *api.NewAccess:
		w.add(is.Name)
		w.access(is.Role, is.Hosts, is.Expires.Sub(asked))
	case *api.NewLink:
		w.add(is.User)
		w.access(is.Role, is.Hosts, is.Expires.Sub(asked))
	}
}

func (w *commandLine) access(role api.Role, hosts string, lasts time.Duration) {
	w.flag("--role", string(role))
	w.flag("--hosts", hosts)
	w.lasts(lasts)
}

// holdings are what is banned or let in. What each entry says is in the words where there is one;
// of several that differ the words say so.
func (w *commandLine) holdings(is *api.NewHoldings) {
	lasts, reason := is.ForSeconds, is.Reason
	w.addresses(len(is.Entries), func(i int) string { return is.Entries[i].What })
	if len(is.Entries) == 1 {
		e := is.Entries[0]
		w.add(e.Service)
		if e.ForSeconds > 0 {
			lasts = e.ForSeconds
		}
		if e.Reason != "" {
			reason = e.Reason
		}
	} else if slices.ContainsFunc(is.Entries, func(e api.NewHolding) bool { return e.Service != "" || e.ForSeconds > 0 && e.ForSeconds != lasts }) {
		w.words = append(w.words, "(each to a service, or for a time, of its own)")
		lasts = 0
	}
	w.lasts(time.Duration(min(lasts, int64(math.MaxInt64/time.Second))) * time.Second)
	w.flag("--hosts", is.Hosts)
	w.set("--keep-longer", is.KeepLonger)
	w.flag("-m", reason)
}

func (w *commandLine) addresses(n int, what func(int) string) {
	for i := range min(n, mostAsked) {
		w.add(what(i))
	}
	if n > mostAsked {
		w.words = append(w.words, fmt.Sprintf("(and %d more)", n-mostAsked))
	}
}

func labelWords(labels map[string]string) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, name+"="+labels[name])
	}
	return words
}

func addressWords(all []netip.Addr) string {
	var words []string
	for _, a := range all {
		words = append(words, a.String())
	}
	return strings.Join(words, ",")
}
