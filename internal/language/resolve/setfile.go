package resolve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sluice/internal/base/addrset"
	"sluice/internal/language/policy"
)

// maxSetFileErrors is how many bad lines of one file are named; a file of the
// wrong kind has them all bad.
const maxSetFileErrors = 20

// maxSetFileLine is in bytes; the longest range with a remark behind it is far
// shorter.
const maxSetFileLine = 64 << 10

// ReadSetFile reads one address, prefix or range a line as a stream; what
// follows # or ; is a remark. Bad lines come back as policy.Errors with their
// line and column in name.
func ReadSetFile(name string, text io.Reader, add func(addrset.Range)) error {
	return ReadSetLines(name, text, func(r addrset.Range, _ int) { add(r) })
}

// ReadSetLines is ReadSetFile with the line of each element, from 1.
func ReadSetLines(name string, text io.Reader, add func(r addrset.Range, line int)) error {
	return eachLine(name, text, func(r addrset.Range, line, _ int) { add(r, line) })
}

// eachLine is ReadSetFile with the line and the column of each element, from 1.
func eachLine(name string, text io.Reader, add func(r addrset.Range, line, column int)) error {
	return EachLine(name, text, "#;", func(element string, line, column int) error {
		r, err := addrset.ParseRange(element)
		if err == nil {
			add(r, line, column)
		}
		return err
	})
}

// EachLine reads a text that has one element a line, and a remark behind each of the
// bytes of remarks; lines and columns are from 1. What take says is wrong with an
// element comes back as ReadSetFile's errors do.
func EachLine(name string, text io.Reader, remarks string, take func(element string, line, column int) error) error {
	var errs policy.Errors
	fail := func(line, column int, message, source string) {
		errs = append(errs, &policy.Error{Pos: policy.Pos{File: name, Line: line, Column: column}, Message: message, Line: source})
	}
	scanner := bufio.NewScanner(text)
	scanner.Buffer(make([]byte, 64<<10), maxSetFileLine)
	n := 0
	for scanner.Scan() {
		n++
		line := scanner.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		element := line
		for i := range len(remarks) {
			element, _, _ = strings.Cut(element, remarks[i:i+1])
		}
		element = strings.TrimSpace(element)
		if element == "" {
			continue
		}
		column := utf8.RuneCountInString(line[:strings.Index(line, element)]) + 1
		err := take(element, n, column)
		if err == nil {
			continue
		}
		fail(n, column, err.Error(), line)
		if len(errs) == maxSetFileErrors {
			fail(n, 1, fmt.Sprintf("stopped after %d bad lines", maxSetFileErrors), "")
			return errs
		}
	}
	switch err := scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		fail(n+1, 1, fmt.Sprintf("line longer than %d bytes: not a list of addresses", maxSetFileLine), "")
	case err != nil:
		fail(n+1, 1, "cannot continue reading: "+err.Error(), "")
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}
