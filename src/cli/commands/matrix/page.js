const wanted = document.getElementById("wanted");
wanted.hidden = false;
wanted.addEventListener("input", () => {
  const text = wanted.value.trim().toLowerCase();
  for (const row of document.querySelectorAll("tbody tr")) {
    row.hidden = text !== "" && !row.dataset.name.toLowerCase().includes(text);
  }
});
