package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Read reads a file, or all *.hcl files of a directory as one, in the order of their names.
func Read(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	names := []string{path}
	if info.IsDir() {
		if names, err = filepath.Glob(filepath.Join(path, "*.hcl")); err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("read the configuration: %s holds no *.hcl file", path)
		}
		slices.Sort(names)
	}
	var files []*hcl.File
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		f, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
		if diags.HasErrors() {
			return nil, diagnosed(diags)
		}
		files = append(files, f)
	}
	return decode(hcl.MergeFiles(files))
}

// Parse reads a configuration from memory; name is for messages.
func Parse(src []byte, name string) (*File, error) {
	f, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diagnosed(diags)
	}
	return decode(f.Body)
}

func decode(body hcl.Body) (*File, error) {
	out := Default()
	if diags := gohcl.DecodeBody(body, nil, out); diags.HasErrors() {
		return nil, diagnosed(diags)
	}
	return out, nil
}

// diagnosed gives one line for each complaint: file:line, what, and the hint of the parser.
func diagnosed(diags hcl.Diagnostics) error {
	var errs []error
	for _, d := range diags {
		where := ""
		if d.Subject != nil {
			where = fmt.Sprintf("%s:%d: ", d.Subject.Filename, d.Subject.Start.Line)
		}
		errs = append(errs, fmt.Errorf("%s%s: %s", where, d.Summary, d.Detail))
	}
	return errors.Join(errs...)
}
