"""Records -> sections -> text, Markdown and HTML; charts, galleries, figures."""
