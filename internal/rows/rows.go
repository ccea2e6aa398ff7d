// Package rows reads the rows of a CSV file as kv values: the key is one column, the value a JSON object of all columns.
package rows

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"chainmail/engine/kinds"
)

// Row is one record of a file.
type Row struct {
	Line  int
	Key   string
	Value []byte // a JSON object, column -> text
}

const (
	maxKey        = 1 << 10 // as the engine bounds it
	byteOrderMark = "\ufeff"
)

// Read reads a whole file and refuses it whole: if the key column is missing or a column comes twice, a record is broken, not
// UTF-8 or has another number of fields, a key is empty, too long or comes twice. Errors name the line.
func Read(r io.Reader, name, key string) ([]Row, error) {
	text := bufio.NewReader(r)
	if b, _ := text.Peek(len(byteOrderMark)); string(b) == byteOrderMark {
		text.Discard(len(b))
	}
	c := csv.NewReader(text)
	head, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: the header cannot be read: %w", name, err)
	}
	at := slices.Index(head, key)
	if at < 0 {
		return nil, fmt.Errorf("%s:1: no column %q; it has %q", name, key, head)
	}
	for i, h := range head { // two of one name would be one in the value
		if !utf8.ValidString(h) || slices.Contains(head[:i], h) {
			return nil, fmt.Errorf("%s:1: column %q stands there twice or is not UTF-8", name, h)
		}
	}
	var out []Row
	lines := map[string]int{}
	for {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w; nothing was imported", name, err)
		}
		line, _ := c.FieldPos(0)
		row, err := makeRow(head, rec, at)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w; nothing was imported", name, line, err)
		}
		if old, twice := lines[row.Key]; twice {
			return nil, fmt.Errorf("%s:%d: key %q stands in line %d already; nothing was imported", name, line, row.Key, old)
		}
		lines[row.Key], row.Line = line, line
		out = append(out, row)
	}
}

func makeRow(head, rec []string, at int) (Row, error) {
	fields := make(map[string]string, len(head))
	for i, h := range head {
		if !utf8.ValidString(rec[i]) { // JSON would replace it
			return Row{}, fmt.Errorf("column %q is not UTF-8", h)
		}
		fields[h] = rec[i]
	}
	value, err := json.Marshal(fields)
	switch {
	case err != nil:
		return Row{}, err
	case rec[at] == "":
		return Row{}, errors.New("the key is empty")
	case len(rec[at]) > maxKey:
		return Row{}, fmt.Errorf("the key has %d bytes; at most %d are allowed", len(rec[at]), maxKey)
	case len(value) > kinds.MaxValue:
		return Row{}, fmt.Errorf("the row has %d bytes; at most %d are allowed", len(value), kinds.MaxValue)
	}
	return Row{Key: rec[at], Value: value}, nil
}
