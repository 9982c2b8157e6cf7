const shown = document.body.dataset.version;
setInterval(async () => {
  try {
    const answer = await fetch("/version");
    if (answer.ok && (await answer.text()) !== shown) location.reload();
  } catch {
    // The server has stopped; what is shown stays.
  }
}, 1000);
