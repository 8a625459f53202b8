// Package tell sends messages to people outside: lines to the journal of systemd, and JSON to a
// webhook. Callers: the agent's alerts, and the notices of a fleet.
package tell

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// Journal writes a line with fields to the journal; false where there is none that takes it.
// Fields that are empty are left out, and each name gets SLUICE_ before it.
func Journal(text string, priority journal.Priority, fields map[string]string) bool {
	all := map[string]string{}
	for name, value := range fields {
		if value != "" {
			all["SLUICE_"+name] = value
		}
	}
	return journal.Enabled() && journal.Send(text, priority, all) == nil
}

// Hook is where JSON is sent by POST.
type Hook struct {
	URL           string         // of http or https
	Authorization string         // the header of that name; "": none
	Roots         *x509.CertPool // who may certify it; nil: whom the machine trusts
}

// Post sends a JSON text, and says the status of the answer. No connection is kept, and
// redirects are not followed. The error holds neither the URL, which may have a secret, nor words
// of the answer.
func (h Hook) Post(ctx context.Context, text []byte) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(text))
	if err != nil {
		return "", withoutURL(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if h.Authorization != "" {
		r.Header.Set("Authorization", h.Authorization)
	}
	client := http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: h.Roots}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", withoutURL(err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 1<<16)
	said := fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if answer.StatusCode >= http.StatusMultipleChoices {
		return said, fmt.Errorf("it answers %s", said)
	}
	return said, nil
}

// withoutURL is an error without the URL, and where no HTTP was answered, without what was.
func withoutURL(err error) error {
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err
	}
	if strings.Contains(err.Error(), "malformed") {
		return errors.New("what it answers is no HTTP")
	}
	return err
}

// Printable leaves out what a terminal obeys, line breaks among it: others choose the names of
// their processes and chains, and what they ask for.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}
