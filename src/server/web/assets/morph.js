// Makes one tree like another and keeps what a person did to it: focus, selection, scroll, what was opened, what was typed or ticked.

// What the person has in hand is theirs.
const HELD = new Set(['open', 'value', 'checked', 'hidden']);

export function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  // A module keeps this part by itself, as long as it is of the same thing; of another, it begins anew.
  if (old.dataset?.keep !== undefined) {
    if (old.dataset.keep !== fresh.dataset?.keep) old.replaceWith(document.importNode(fresh, true));
    return;
  }
  attributes(old, fresh);
  children(old, fresh);
}

function attributes(old, fresh) {
  const holds = /^(DETAILS|DIALOG|INPUT|SELECT|TEXTAREA|OPTION)$/.test(old.nodeName);
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(holds && HELD.has(name))) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !(holds && HELD.has(name))) old.setAttribute(name, value);
  }
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || '') === (b.id || '');
}

function children(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.id) keyed.set(child.id, child);
  // What is not wanted goes first: what stays must not be moved, or it would lose its focus and where it was scrolled to.
  const wantedIds = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
  let at = old.firstChild;
  const drop = () => {
    const next = at.nextSibling;
    at.remove();
    at = next;
  };
  for (const wanted of [...fresh.childNodes]) {
    while (at?.id && !wantedIds.has(at.id)) drop();
    const known = wanted.id ? keyed.get(wanted.id) : undefined;
    if (known) {
      let node = at;
      while (node && node !== known && !wantedIds.has(node.id)) node = node.nextSibling;
      if (node === known) while (at !== known) drop();
      if (known !== at) old.insertBefore(known, at);
      else at = at.nextSibling;
      keyed.delete(wanted.id);
      if (known.nodeName === wanted.nodeName) morph(known, wanted);
      else known.replaceWith(document.importNode(wanted, true));
      continue;
    }
    if (at && alike(at, wanted)) {
      const next = at.nextSibling;
      morph(at, wanted);
      at = next;
      continue;
    }
    old.insertBefore(document.importNode(wanted, true), at);
  }
  while (at) drop();
}
