package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Client asks a controller over HTTPS. Refusals are *Failure.
type Client struct {
	HTTP *http.Client // with the certificates
	Base string       // https://CONTROLLER:7443
}

// Roots asks for each root.json, the first one first. Who does not trust the controller
// yet holds them against a hash that it knows.
func (c *Client) Roots(ctx context.Context) ([][]byte, error) {
	out := &Roots{}
	err := c.ask(ctx, http.MethodGet, PathRoot, nil, out)
	return out.Roots, err
}

// Enrol gives the token's secret away: HTTP must trust the authority of root.json alone.
// A *Failure of KindPending says that somebody has to approve the host first.
func (c *Client) Enrol(ctx context.Context, e *Enrol) (*Enrolled, error) {
	out := &Enrolled{}
	err := c.ask(ctx, http.MethodPost, PathEnrol, e, out)
	return out, err
}

// Renew asks for a new certificate of the host whose certificate HTTP has.
func (c *Client) Renew(ctx context.Context, r *Renew) (*Renewed, error) {
	out := &Renewed{}
	err := c.ask(ctx, http.MethodPost, PathRenew, r, out)
	return out, err
}

// Trust asks for what the stream pushes.
func (c *Client) Trust(ctx context.Context) (*Trust, error) {
	out := &Trust{}
	err := c.ask(ctx, http.MethodGet, PathTrust, nil, out)
	return out, err
}

// Desired asks for what the stream pushes.
func (c *Client) Desired(ctx context.Context) (*Desired, error) {
	out := &Desired{}
	err := c.ask(ctx, http.MethodGet, PathDesired, nil, out)
	return out, err
}

// Living asks for the bans and allows that a host lacks which has got so far, or for the
// whole of them behind an ID, where a part before said that there is more.
func (c *Client) Living(ctx context.Context, has Living, from string) (*Live, error) {
	q := url.Values{"incarnation": {strconv.FormatInt(has.Incarnation, 10)}, "after": {strconv.FormatInt(has.Seq, 10)}}
	if from != "" {
		q.Set("from", from)
	}
	out := &Live{}
	err := c.ask(ctx, http.MethodGet, PathLiving+"?"+q.Encode(), nil, out)
	return out, err
}

func (c *Client) ask(ctx context.Context, method, path string, in, out Checker) error {
	var body io.Reader
	if in != nil {
		if err := in.Check(); err != nil {
			return err
		}
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	answer, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := readAll(answer.Body, MostFromController)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", path, c.Base, err)
	}
	if err := Read(text, out); err != nil {
		return fmt.Errorf("%s of %s: %w", path, c.Base, err)
	}
	return nil
}

// do asks, and answers with what says 200.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.Base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(path, PathBlobs) {
		r.Header.Set("Accept", ListPatchType)
	}
	answer, err := c.HTTP.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	if f := failed(answer); f != nil {
		return nil, f
	}
	return nil, fmt.Errorf("%s of %s answers %s", path, c.Base, answer.Status)
}

func readAll(from io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("the answer has more than %d bytes", most)
	}
	return text, err
}

// Blob asks for the bytes of a hash, of which there are at most so many. from, unless nil,
// is a blob that the caller has: the answer is then smaller where they have much in
// common. What comes has the hash, or it is an error.
func (c *Client) Blob(ctx context.Context, hash string, most int64, from []byte) ([]byte, error) {
	if err := CheckSHA256(hash); err != nil {
		return nil, err
	}
	path := PathBlobs + hash
	if from != nil {
		path += "?from=" + Hash(from)
	}
	answer, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	most = min(most, MostBlob)
	content, err := readAll(answer.Body, most)
	if err == nil {
		switch answer.Header.Get("Content-Type") {
		case PatchType:
			content, err = Unpatch(content, from, most)
		case ListPatchType:
			content, err = UnpatchList(content, from, most)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("blob %.12s of %s: %w", hash, c.Base, err)
	}
	if got := Hash(content); got != hash {
		return nil, fmt.Errorf("blob %.12s of %s has the SHA-256 %.12s: it was changed on the way, or in the controller's store", hash, c.Base, got)
	}
	return content, nil
}

// Hash is the SHA-256 of a blob as it is named.
func Hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
