package postgres

import (
	"chainmail/engine/core"
	"chainmail/engine/store"
)

// change is what all puts of one key in a transaction come to.
type change struct {
	key     core.Key
	first   *core.Put // compared with what is there; nil: anything may be
	wipe    bool      // the pages that are there go
	gone    bool      // the copy is not there afterwards
	meta    core.CopyMeta
	pages   map[string]core.Page
	removed map[string]bool // without wipe
}

// fold makes one change of the puts of each key.
func fold(puts []core.Put) ([]*change, error) {
	byKey := map[core.Key]*change{}
	var out []*change
	for i := range puts {
		p := &puts[i]
		c := byKey[p.Key]
		if c == nil {
			c = &change{key: p.Key, pages: map[string]core.Page{}, removed: map[string]bool{}}
			byKey[p.Key] = c
			out = append(out, c)
			if !p.Drop {
				c.first = p
			}
		} else if err := store.Admissible(c.meta, p); err != nil {
			return nil, err
		}
		c.add(p)
	}
	return out, nil
}

func (c *change) add(p *core.Put) {
	c.gone, c.meta = p.Drop, p.Meta
	if p.Drop {
		c.meta = core.CopyMeta{}
	}
	if p.Drop || p.Full {
		c.wipe = true
		clear(c.pages)
		clear(c.removed)
	}
	if p.Drop {
		return
	}
	for _, name := range p.Removed {
		delete(c.pages, name)
		c.removed[name] = !c.wipe
	}
	for _, pg := range p.Pages {
		c.pages[pg.Name] = pg
		delete(c.removed, pg.Name)
	}
}
