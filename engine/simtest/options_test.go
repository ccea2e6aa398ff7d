package simtest

import "testing"

// TestWithout turns each kind of trouble off by name and sees that something of the options changes for some seed.
func TestWithout(t *testing.T) {
	for _, k := range Kinds() {
		changed := false
		for seed := uint64(1); seed < 200 && !changed; seed++ {
			o := Draw(seed)
			less, err := o.Without(k)
			if err != nil {
				t.Fatal(err)
			}
			changed = less != o
		}
		if !changed {
			t.Errorf("%s turns nothing off", k)
		}
	}
	if _, err := Draw(1).Without("nothing"); err == nil {
		t.Error("an unknown kind is accepted")
	}
}

// TestShrink gives Shrink a finding that needs no fault at all: all kinds of trouble but what the load needs must go.
func TestShrink(t *testing.T) {
	var o Options
	for seed := uint64(1); ; seed++ {
		if seed > 100 {
			t.Fatal("a call that is made again and was forgotten is not found")
		}
		o = Draw(seed)
		o.Load.Repeats, o.Load.Window = 1, 0 // keys forget at once what they were asked
		if New(o).Run() != nil {
			break
		}
	}
	less, off := Shrink(o)
	if New(less).Run() == nil {
		t.Fatal("what is left does not fail")
	}
	if len(off) == 0 {
		t.Fatal("nothing was turned off")
	}
}
