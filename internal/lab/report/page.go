package report

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // the parts of a page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"sync"

	"github.com/google/renameio/v2"

	"sluice/internal/lab/figures"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed draw.js
	drawJS string
	//go:embed echarts/echarts.min.js.gz
	libraryPacked []byte

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// library is the chart library's text.
var library = sync.OnceValues(func() (string, error) {
	packed, err := gzip.NewReader(bytes.NewReader(libraryPacked))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(packed)
	return string(text), err
})

// parts is what page.html takes. What is not of type string goes in as it is.
type parts struct {
	View          view
	Policy        template.HTMLAttr // of what the page may load and run
	Style         template.CSS
	Data          template.JS
	Library, Draw template.JS
}

// Write writes a report as one HTML page of about 1.2 MB.
func Write(w io.Writer, r *figures.Report) error {
	library, err := library()
	if err != nil {
		return fmt.Errorf("unpack the chart library: %w", err)
	}
	return render(w, r, library)
}

func render(w io.Writer, r *figures.Report, library string) error {
	v := newView(r)
	data, err := json.Marshal(v.Drawn) // with <, > and & as escapes
	if err != nil {
		return fmt.Errorf("write a page: %w", err)
	}
	policy := fmt.Sprintf("default-src 'none'; script-src %s %s; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
		hash(library), hash(drawJS))
	return pageTemplate.Execute(w, parts{
		View:   v,
		Policy: template.HTMLAttr(`content="` + policy + `"`), //nolint:gosec // written here
		Style:  template.CSS(pageCSS),                         //nolint:gosec // a file of this package
		Data:   template.JS(data),                             //nolint:gosec // JSON, escaped for HTML
		// The scripts have to be as their hashes say.
		Library: template.JS(library), //nolint:gosec // whose hash a test compares
		Draw:    template.JS(drawJS),  //nolint:gosec // a file of this package
	})
}

// Save writes a page into a file, whole or not at all.
func Save(file string, r *figures.Report) error {
	f, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if err := Write(f, r); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// hash names a script in a content security policy.
func hash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
