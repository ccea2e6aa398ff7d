package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Example writes a configuration with every key, its value and what it is for. That of Default is the file
// config.hcl.example.
func Example(f *File) string {
	var b strings.Builder
	b.WriteString("# Every key with its default. All of them may be left out.\n")
	writeBody(&b, reflect.ValueOf(f).Elem(), "")
	return b.String()
}

func writeBody(b *strings.Builder, v reflect.Value, indent string) {
	width := 0
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name, block := key(f); !block {
			width = max(width, len(name))
		}
	}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, block := key(f)
		doc := f.Tag.Get("doc")
		if block {
			b.WriteString("\n")
			if doc != "" {
				fmt.Fprintf(b, "%s# %s\n", indent, doc)
			}
			fmt.Fprintf(b, "%s%s {\n", indent, name)
			writeBody(b, v.FieldByIndex(f.Index).Elem(), indent+"  ")
			fmt.Fprintf(b, "%s}\n", indent)
			continue
		}
		if doc != "" {
			doc = " # " + doc
		}
		fmt.Fprintf(b, "%s%-*s = %s%s\n", indent, width, name, literal(v.FieldByIndex(f.Index)), doc)
	}
}

func key(f reflect.StructField) (name string, block bool) {
	name, kind, _ := strings.Cut(f.Tag.Get("hcl"), ",")
	return name, kind == "block"
}

func literal(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = literal(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}
