package rows

import (
	"bytes"
	"strings"
	"testing"

	"chainmail/examples/data"
)

func TestRead(t *testing.T) {
	list, err := Read(strings.NewReader("id,note\n1,\"two\nlines\"\n2,\n"), "f.csv", "id")
	if err != nil || len(list) != 2 || list[0].Key != "1" || string(list[0].Value) != `{"id":"1","note":"two\nlines"}` || list[1].Line != 4 {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := Read(strings.NewReader("\ufeffid,b\n1,2\n"), "f.csv", "id"); err != nil || len(list) != 1 || string(list[0].Value) != `{"b":"2","id":"1"}` {
		t.Errorf("with a byte order mark: %+v %v", list, err)
	}
	for src, want := range map[string]string{
		"id,b\n1,2\n2,\xff\n":   `f.csv:3: column "b" is not UTF-8`,
		"id,b,b\n1,2,3\n":       `f.csv:1: column "b" stands there twice`,
		"id,b\xff\n1,2\n":       `f.csv:1: column "b\xff" stands there twice or is not UTF-8`,
		"":                      "header cannot be read",
		"a,b\n1,2\n":            `f.csv:1: no column "id"`,
		"id,b\n1\n":             "record on line 2: wrong number of fields",
		"id,b\n1,2\n1,\"3\n":    "line 3",
		"id,b\n1,2\n3,4\n1,5\n": `f.csv:4: key "1" stands in line 2 already`,
		"id,b\n,2\n":            "f.csv:2: the key is empty",
		"id,b\n" + strings.Repeat("k", 1025) + ",2\n":  "f.csv:2: the key has 1025 bytes",
		"id,b\nk," + strings.Repeat("v", 1<<20) + "\n": "f.csv:2: the row has",
	} {
		if list, err := Read(strings.NewReader(src), "f.csv", "id"); err == nil || !strings.Contains(err.Error(), want) || list != nil {
			t.Errorf("%.40q gives %d rows, %v", src, len(list), err)
		}
	}
}

func TestNavaids(t *testing.T) {
	list, err := Read(bytes.NewReader(data.Navaids), "navaids.csv", "id")
	if err != nil || len(list) != 11008 {
		t.Errorf("%d rows, %v", len(list), err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("id,b\n1,\"x\n\"\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		seen := map[string]bool{}
		list, _ := Read(bytes.NewReader(src), "f", "id")
		for _, r := range list {
			if r.Key == "" || seen[r.Key] || !bytes.HasPrefix(r.Value, []byte("{")) {
				t.Errorf("%+v", r)
			}
			seen[r.Key] = true
		}
	})
}
